"""Case C52: what a training leaves loads in a fresh process with safe settings, and answers as the trainer did.

Every kind of model is trained for an epoch with each framework, and exported in each format that it has. The probe
beside a model is what the framework itself computed in the trainer, so a check compares with the framework.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.workers.exports.processes import run_script
from tests.workers.model_file.saved import penguins, trained
from tests.workers.training_jobs import builtin_job, csv_job
from workers.exports.reference import TOLERANCE, Reference
from workers.model_file import read_probe
from workers.protocol import Assignment

SEQUENTIAL: Mapping[str, list[dict[str, Any]]] = {
    "lstm": [{"type": "reshape", "shape": [8, 8]}, {"type": "lstm", "units": 8}],
    "gru": [
        {"type": "reshape", "shape": [8, 8]},
        {"type": "gru", "units": 6, "return_sequences": True},
        {"type": "layer_norm"},
        {"type": "conv1d", "filters": 4, "kernel_size": 3, "strides": 2, "activation": "gelu"},
    ],
    "embedding": [
        {"type": "embedding", "input_dim": 17, "output_dim": 3},
        {"type": "flatten"},
        {"type": "dense", "units": 8, "activation": "leaky_relu"},
    ],
    "residual and parallel": [
        {"type": "dense", "units": 8, "activation": "silu"},
        {
            "type": "residual",
            "layers": [
                {"type": "parallel", "branches": [[{"type": "dense", "units": 3}], [{"type": "dense", "units": 5}]]}
            ],
        },
        {"type": "dropout", "rate": 0.2},
    ],
}
PRESETS: Mapping[str, dict[str, Any]] = {
    "linear": {"type": "linear"},
    "mlp": {"type": "mlp", "hidden": [8], "batch_norm": True, "dropout": 0.1},
    "cnn": {"type": "cnn", "filters": [4], "dense": [8]},
    "resnet": {"type": "resnet", "filters": [4, 6], "blocks": 1},
}
KINDS = [*PRESETS, *SEQUENTIAL, "regression", "text and gaps"]
FRAMEWORKS = ("torch", "tensorflow")


def job(work_dir: Path, kind: str, framework: str) -> Assignment:
    settings: dict[str, Any] = {"hyperparameters": {"epochs": 1, "batch_size": 256}}
    if kind == "regression":
        return builtin_job(work_dir, "diabetes", framework, **settings)
    if kind == "text and gaps":
        return csv_job(work_dir, penguins(), {"target": "species", "missing": "impute"}, framework, **settings)
    model = PRESETS.get(kind) or {"type": "sequential", "layers": SEQUENTIAL[kind]}
    preprocess = {"numeric": "none"} if kind == "embedding" else {}
    return builtin_job(work_dir, {"source": "digits", "preprocess": preprocess}, framework, model=model, **settings)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Path]:
    """A trained model of every kind and framework."""
    root = tmp_path_factory.mktemp("trained")
    return {
        (kind, framework): trained(job(root / f"{place}-{framework}", kind, framework), framework)[0]
        for framework in FRAMEWORKS
        for place, kind in enumerate(KINDS)
    }


@pytest.mark.slow
class TestEveryModel:
    @pytest.mark.parametrize("framework", FRAMEWORKS)
    @pytest.mark.parametrize("kind", KINDS)
    def test_numpy_answers_as_the_framework_did(
        self, folders: dict[tuple[str, str], Path], kind: str, framework: str
    ) -> None:
        probe = read_probe(folders[kind, framework])
        assert probe is not None

        reference = Reference.of(folders[kind, framework])

        assert reference.tolerance == TOLERANCE
        reference.check("NumPy", probe.outputs)

    def test_onnx_answers_as_the_framework_did(self, folders: dict[tuple[str, str], Path], tmp_path: Path) -> None:
        run_script("fresh.py", ["make", "onnx", *folders.values()], tmp_path)
        assert all((folder / "model.onnx").is_file() for folder in folders.values())
        run_script("fresh.py", ["check", "onnx", *folders.values()], tmp_path)

    def test_keras_answers_as_the_framework_did(self, folders: dict[tuple[str, str], Path], tmp_path: Path) -> None:
        """Those of torch, too: the file holds no trace of where the weights come from."""
        run_script("fresh.py", ["make", "keras", *folders.values()], tmp_path)
        assert all((folder / "model.keras").is_file() for folder in folders.values())
        run_script("fresh.py", ["check", "keras", *folders.values()], tmp_path)
