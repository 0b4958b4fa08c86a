"""A model of the user's own code, from the bundle to predictions and files, over a service of real processes."""

import hashlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import onnxruntime
import pytest

from tests.e2e.scripts import artifacts, code_stack, upload
from tests.e2e.specs import quick
from tests.e2e.stack import Stack
from tests.e2e.test_predict import accuracy, predict, rows_of

NETS: Final = {
    "torch": """
from torch import nn

def build(hidden, *, input_shape, output_units):
    return nn.Sequential(nn.Linear(*input_shape, hidden), nn.BatchNorm1d(hidden), nn.ReLU(), nn.Linear(hidden, output_units))
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


class TestPythonModels:
    @pytest.mark.parametrize(("framework", "form"), [("torch", "onnx"), ("tensorflow", "keras")])
    def test_it_is_trained_answers_and_is_exported(self, stack: Stack, framework: str, form: str) -> None:
        job_id = trained(stack, framework, NETS[framework], exports=["report", form])
        rows, targets = rows_of("iris")

        answer = predict(stack, job_id, rows)

        assert answer.status_code == 200, answer.text
        measured = stack.job(job_id)["metrics"]["last"]["accuracy"]
        assert accuracy(answer.json()["labels"], targets) == pytest.approx(
            measured, abs=0.25
        )  # of all rows, at the end
        files = artifacts(stack, job_id)
        assert {"code.zip", "model.json", "report.png", f"model.{form}"} <= files.keys()
        later = stack.client.post(f"/v1/jobs/{job_id}/exports", json={"format": "tensorboard", "timeout_s": 60})
        assert later.status_code == 201, later.text
        if form == "onnx":
            x = np.zeros((2, 4), np.float32)
            (shares,) = onnxruntime.InferenceSession(files["model.onnx"]).run(["probabilities"], {"x": x})
            assert shares.sum(axis=1) == pytest.approx([1.0, 1.0], abs=1e-5)

    def test_the_code_is_the_bundle_byte_for_byte_and_outlives_it(self, stack: Stack) -> None:
        job_id = trained(stack, "torch", NETS["torch"] + "# a bundle of its own\n")
        bundle = stack.job(job_id)["effective_spec"]["model"]["bundle"]
        shown = stack.client.get(f"/v1/bundles/{bundle}").json()

        assert stack.client.delete(f"/v1/bundles/{bundle}").status_code == 204

        assert hashlib.sha256(artifacts(stack, job_id)["code.zip"]).hexdigest() == shown["digest"]
        assert predict(stack, job_id, rows_of("iris")[0]).status_code == 200

    def test_code_that_fails_later_is_told_and_the_next_model_is_answered(self, stack: Stack) -> None:
        broken = NETS["torch"].replace(
            "    return", "    import os; assert 'errand' not in os.getcwd(), 'seven'\n    return"
        )
        failing, good = trained(stack, "torch", broken), trained(stack, "torch", NETS["torch"])
        rows, _ = rows_of("iris", 1)

        told = predict(stack, failing, rows)

        assert (told.status_code, told.json()["code"]) == (422, "model_failed")
        assert "AssertionError: seven" in told.json()["detail"]
        assert predict(stack, good, rows).status_code == 200
