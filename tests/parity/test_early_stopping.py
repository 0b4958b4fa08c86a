"""Early stopping waits as Keras' own callback does, on any course of values."""

import importlib

import numpy as np
import pytest
import torch._dynamo  # noqa: F401 - before Keras brings TensorFlow: see tests/workers/backends/conftest.py

from app.spec.training import EarlyStopping
from workers.early_stopping import Patience


def in_keras(values: list[float], monitor: str, mode: str, patience: int, min_delta: float) -> int | None:
    keras = importlib.import_module("keras")
    callback = keras.callbacks.EarlyStopping(monitor, min_delta=min_delta, patience=patience, mode=mode)
    callback.set_model(type("Model", (), {"stop_training": False})())
    callback.on_train_begin()
    for epoch, value in enumerate(values):
        callback.on_epoch_end(epoch, {monitor: value})
        if callback.model.stop_training:
            return epoch + 1
    return None


def in_ours(values: list[float], monitor: str, patience: int, min_delta: float) -> int | None:
    ours = Patience(EarlyStopping.model_validate({"monitor": monitor, "patience": patience, "min_delta": min_delta}))
    return next((epoch for epoch, value in enumerate(values, 1) if ours.observe({monitor: value})), None)


class TestPatience:
    @pytest.mark.parametrize(("monitor", "mode"), [("val_loss", "min"), ("val_accuracy", "max")])
    @pytest.mark.parametrize("seed", range(20))
    def test_stops_after_the_same_epoch(self, seed: int, monitor: str, mode: str) -> None:
        generator = np.random.default_rng(seed)
        patience, min_delta = int(generator.integers(1, 6)), float(generator.choice([0.0, 0.05, 0.2]))
        values = np.abs(np.cumsum(generator.normal(0, 0.2, 30)) + 5).tolist()

        expected = in_keras(values, monitor, mode, patience, min_delta)

        assert in_ours(values, monitor, patience, min_delta) == expected
