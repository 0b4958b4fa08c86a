"""Every preset, and sequential models of the other layers, through the whole loop: ten epochs on both frameworks.

The curves in float64 stay within 1e-9 of each other, everything that is reported included. The models are tiny and
the table small (80 rows, of which 56 train; batches of 16 leave 8), so that rounding has little room to grow: a
rectifier or a max pool that flips, or a bias in front of batch norm, would make a chaos of a longer training.
"""

import functools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.workers.training_jobs import Listener, csv_job
from workers.backends.base import load_backend
from workers.loop import train

ROWS, FEATURES = 80, 16
CONV: dict[str, Any] = {"type": "conv1d", "filters": 4, "kernel_size": 3}

MODELS: dict[str, dict[str, Any]] = {
    "linear": {"type": "linear"},
    "mlp": {"type": "mlp", "hidden": [8, 6], "dropout": 0.2},
    "mlp with batch norm": {"type": "mlp", "hidden": [8, 6], "batch_norm": True, "dropout": 0.2},
    "cnn": {"type": "cnn", "filters": [3, 4], "dense": [6], "dropout": 0.2, "input_shape": [4, 4, 1]},
    "resnet": {"type": "resnet", "filters": [3, 4], "blocks": 1, "dropout": 0.2, "input_shape": [4, 4, 1]},
    "lstm": {
        "type": "sequential",
        "layers": [
            {"type": "reshape", "shape": [8, 2]},
            CONV | {"activation": "tanh", "strides": 2},
            {"type": "dropout", "rate": 0.2},
            {"type": "lstm", "units": 4, "return_sequences": True},
            {"type": "layer_norm"},
            {"type": "lstm", "units": 3},
        ],
    },
    "gru beside convolutions": {
        "type": "sequential",
        "layers": [
            {"type": "reshape", "shape": [8, 2]},
            {
                "type": "parallel",
                "branches": [
                    [{"type": "gru", "units": 3, "return_sequences": True}],
                    [CONV | {"dilation": 2, "activation": "gelu"}, {"type": "batch_norm"}],
                ],
            },
            {"type": "residual", "layers": [CONV | {"filters": 7}], "shortcut": [{"type": "dense", "units": 7}]},
            {"type": "flatten"},
        ],
    },
}

SETTINGS: dict[str, dict[str, Any]] = {
    "plateau, adamw, clipping": {
        "optimizer": "adamw",
        "weight_decay": 0.05,
        "schedule": {"name": "reduce_on_plateau", "patience": 1, "factor": 0.5},
        "clip_norm": 1.0,
    },
    "warm-up, exponential, rmsprop, balanced classes": {
        "optimizer": "rmsprop",
        "schedule": {"name": "exponential", "factor": 0.9, "warmup_steps": 8},
        "class_weights": "balanced",
        "clip_value": 0.1,
    },
    "step, adagrad, early stopping": {
        "optimizer": "adagrad",
        "schedule": {"name": "step", "every_epochs": 3, "factor": 0.5},
        "early_stopping": {"monitor": "val_loss", "patience": 2},
        "l2": 1e-3,
    },
}


def table(folder: Path) -> Path:
    """Write features and a class that depends on them: which of three ranges a sum of two products lies in."""
    generator = np.random.default_rng(1)
    x = generator.normal(size=(ROWS, FEATURES)).round(6)
    label = np.digitize(x[:, 0] * x[:, 5] + x[:, 10] + generator.normal(0, 0.1, ROWS), [-0.5, 0.5])
    lines = [",".join([*(f"x{place}" for place in range(FEATURES)), "label"])]
    lines += [",".join([*map(str, row.tolist()), "abc"[kind]]) for row, kind in zip(x, label.tolist(), strict=True)]
    path = folder / "table.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


@functools.cache
def curves(framework: str, model: str, settings: str | None = None) -> dict[str, list[float]]:
    """Return every series that a job reports, but for its speed and what it says when a clock lets it."""
    given = {"epochs": 10, "batch_size": 16, "learning_rate": 0.01, "seed": 5, **SETTINGS.get(settings or "", {})}
    with tempfile.TemporaryDirectory() as name:
        listener = Listener()
        job = csv_job(
            Path(name),
            table(Path(name)),
            {"target": "label", "split": {"validation": 0.2, "test": 0.1}},
            framework,
            model=MODELS[model],
            task="classification",
            hyperparameters=given,
        )
        backend = load_backend(framework)
        backend.prepare(job.devices, job.threads)
        train(job, backend, listener, dtype="float64", say=lambda _: None)
    names = {point.name for point in listener.points} - {"samples_per_s", "step_loss"}
    return {name: listener.series(name) for name in sorted(names)}


def largest_difference(model: str, settings: str | None = None) -> float:
    first, second = (curves(framework, model, settings) for framework in ("torch", "tensorflow"))
    assert first.keys() == second.keys() >= {"loss", "val_loss", "test_loss", "learning_rate"}
    assert first["loss"][-1] < first["loss"][0]  # it learns, so that there is something to compare
    return max(
        float(np.abs(np.array(values) - np.array(second[name])).max() / max(1.0, np.abs(values).max()))
        for name, values in first.items()
    )


class TestTenEpochs:
    @pytest.mark.parametrize("model", MODELS)
    def test_every_model_gives_one_curve(self, model: str) -> None:
        assert len(curves("torch", model)["loss"]) == 10
        assert largest_difference(model) <= 1e-9

    @pytest.mark.parametrize("settings", SETTINGS)
    def test_schedules_decide_alike(self, settings: str) -> None:
        assert largest_difference("mlp with batch norm", settings) <= 1e-9
