"""A model of the user's own code, from the bundle to predictions and files, over a service of real processes."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
import onnxruntime
import pytest
from safetensors.numpy import load

from tests.e2e.scripts import artifacts, code_stack, upload
from tests.e2e.specs import quick
from tests.e2e.stack import Stack
from tests.e2e.test_predict import accuracy, predict, rows_of

NETS: Final = {
    "torch": """
from torch import nn

def build(hidden, *, input_shape, output_units):
    first = nn.Sequential(nn.Linear(*input_shape, hidden), nn.BatchNorm1d(hidden), nn.ReLU())
    return nn.Sequential(first, nn.Linear(hidden, output_units))
""",
    "tensorflow": """
import keras
from keras import layers

def build(hidden, *, input_shape, output_units):
    return keras.Sequential([keras.Input(input_shape), layers.Dense(hidden, "relu"), layers.Dense(output_units)])
""",
}


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    with code_stack(tmp_path_factory.mktemp("models") / "home") as running:
        yield running


@pytest.fixture(scope="module")
def good(stack: Stack) -> str:
    """A job of torch that was trained and left as ONNX too."""
    return trained(stack, "torch", NETS["torch"], exports=["report", "onnx"])


def trained(stack: Stack, framework: str, source: str, **changes: Any) -> str:
    model = {
        "type": "python",
        "bundle": upload(stack, {"nets.py": source}),
        "entrypoint": "nets:build",
        "parameters": {"hidden": 16},
    }
    job_id = stack.submit(quick(framework, model=model, **changes))
    job = stack.wait(job_id)
    assert job["state"] == "succeeded", job
    return job_id


def require_same_answers(stack: Stack, job_id: str, files: Mapping[str, bytes]) -> None:
    """The trainer measured the test part with the framework's own forward pass; predictions must be as right."""
    rows, targets = rows_of("iris")
    parts = load(files["split.safetensors"])
    tested = (parts["test"] - min(part.min() for part in parts.values())).tolist()
    assert len(tested) == 30
    answer = predict(stack, job_id, [rows[place] for place in tested])
    assert answer.status_code == 200, answer.text
    measured = stack.job(job_id)["metrics"]["last"]["test_accuracy"]
    assert accuracy(answer.json()["labels"], [targets[place] for place in tested]) == pytest.approx(measured)


class TestPythonModels:
    def test_it_is_trained_exported_and_answers_as_its_trainer_did(self, stack: Stack, good: str) -> None:
        files = artifacts(stack, good)
        assert {"code.zip", "model.json", "report.png", "model.onnx"} <= files.keys()
        require_same_answers(stack, good, files)
        (shares,) = onnxruntime.InferenceSession(files["model.onnx"]).run(
            ["probabilities"], {"x": np.zeros((2, 4), np.float32)}
        )
        assert shares.sum(axis=1) == pytest.approx([1.0, 1.0], abs=1e-5)
        later = stack.client.post(f"/v1/jobs/{good}/exports", json={"format": "tensorboard", "timeout_s": 60})
        assert later.status_code == 201, later.text

    def test_code_that_fails_later_is_told_and_the_next_model_is_answered(self, stack: Stack, good: str) -> None:
        guard = "    import os\n    assert 'errand' not in os.getcwd(), 'seven'\n    first"
        failing = trained(stack, "torch", NETS["torch"].replace("    first", guard, 1))
        rows, _ = rows_of("iris", 1)

        told = predict(stack, failing, rows)

        assert (told.status_code, told.json()["code"]) == (422, "model_failed")
        assert "AssertionError: seven" in told.json()["detail"]
        assert predict(stack, good, rows).status_code == 200

    def test_the_code_is_the_bundle_byte_for_byte_and_outlives_it(self, stack: Stack, good: str) -> None:
        bundle = stack.job(good)["effective_spec"]["model"]["bundle"]
        shown = stack.client.get(f"/v1/bundles/{bundle}").json()

        assert stack.client.delete(f"/v1/bundles/{bundle}").status_code == 204

        assert hashlib.sha256(artifacts(stack, good)["code.zip"]).hexdigest() == shown["digest"]
        assert predict(stack, good, rows_of("iris")[0]).status_code == 200

    @pytest.mark.full
    def test_so_is_one_of_keras(self, stack: Stack) -> None:
        job_id = trained(stack, "tensorflow", NETS["tensorflow"], exports=["keras"])
        files = artifacts(stack, job_id)
        assert "model.keras" in files
        require_same_answers(stack, job_id, files)
