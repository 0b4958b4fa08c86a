"""Activations in each framework and in the saved model's own NumPy, against their formulas in exact arithmetic."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from app.spec.layers import ACTIVATIONS, ActivationLayer, ActivationName, DenseLayer, DropoutLayer, Layer
from workers import model_file
from workers.backends.tensorflow import layers as tensorflow_layers
from workers.backends.tensorflow.framework import tf
from workers.backends.torch import layers as torch_layers

Vector = NDArray[np.floating]

X = np.concatenate([np.linspace(-30, 30, 241), [-1e-8, 1e-8, 0.0]])

FORMULAS: dict[str, Callable[[float], float]] = {
    "linear": lambda x: x,
    "relu": lambda x: max(x, 0.0),
    "leaky_relu": lambda x: x if x > 0 else 0.01 * x,
    "tanh": math.tanh,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)),
    "elu": lambda x: x if x > 0 else math.expm1(x),
    "selu": lambda x: 1.0507009873554805 * (x if x > 0 else 1.6732632423543772 * math.expm1(x)),
    "gelu": lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2)),
    "silu": lambda x: x / (1 + math.exp(-x)),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "softsign": lambda x: x / (1 + abs(x)),
}


def in_torch(name: str, x: Vector) -> Vector:
    return np.asarray(torch_layers.ACTIVATIONS[name](torch.from_numpy(x)).numpy())


def in_tensorflow(name: str, x: Vector) -> Vector:
    return np.asarray(tensorflow_layers.ACTIVATIONS[name](tf.constant(x)).numpy())


def in_numpy(name: str, x: Vector) -> Vector:
    return model_file.ACTIVATIONS[name](x)


PLACES: dict[str, Callable[[str, Vector], Vector]] = {
    "torch": in_torch,
    "tensorflow": in_tensorflow,
    "numpy": in_numpy,
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", ACTIVATIONS)
class TestActivations:
    def test_float64_equals_the_formula(self, name: str, place: str) -> None:
        expected = [FORMULAS[name](x) for x in X.tolist()]

        assert_allclose(PLACES[place](name, X), expected, rtol=1e-12, atol=1e-14)

    def test_float32_stays_float32_and_close(self, name: str, place: str) -> None:
        values = PLACES[place](name, X.astype(np.float32))

        assert values.dtype == np.float32
        assert_allclose(values, [FORMULAS[name](x) for x in X.tolist()], rtol=2e-6, atol=1e-6)

    def test_large_values_stay_finite(self, name: str, place: str) -> None:
        assert np.isfinite(PLACES[place](name, np.array([-1e4, 1e4], np.float32))).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
class TestGradients:
    def test_frameworks_agree(self, name: ActivationName) -> None:
        x = torch.from_numpy(X.copy()).requires_grad_()
        (torchs,) = torch.autograd.grad(torch_layers.ACTIVATIONS[name](x).sum(), x)
        variable = tf.Variable(X)
        with tf.GradientTape() as tape:
            total = tf.reduce_sum(tensorflow_layers.ACTIVATIONS[name](variable))

        tensorflows = tape.gradient(total, variable)

        assert_allclose(np.asarray(torchs), tf.convert_to_tensor(tensorflows).numpy(), rtol=1e-12, atol=1e-13)


LAYERS: tuple[Layer, ...] = (
    DenseLayer("dense_1", 2),
    ActivationLayer("activation_1", "relu"),
    DropoutLayer("dropout_1", 0.5),
    DenseLayer("output", 1),
)
WEIGHTS = {
    "dense_1.kernel": np.array([[1.0, -1.0], [2.0, 0.5]]),
    "dense_1.bias": np.array([0.5, 0.0]),
    "output.kernel": np.array([[3.0], [10.0]]),
    "output.bias": np.array([-1.0]),
}
ROWS = np.array([[1.0, 2.0], [-1.0, 0.0]])
# By hand: (1, 2) -> (5.5, 0) -> 15.5, and (-1, 0) -> (-0.5, 1) -> (0, 1) -> 9.
LOGITS = [[15.5], [9.0]]


class TestForward:
    def test_torch(self) -> None:
        weights = {name: torch.from_numpy(value) for name, value in WEIGHTS.items()}

        assert torch_layers.forward(LAYERS, weights, torch.from_numpy(ROWS)).tolist() == LOGITS

    def test_tensorflow(self) -> None:
        weights = {name: tf.Variable(value) for name, value in WEIGHTS.items()}

        assert tensorflow_layers.forward(LAYERS, weights, ROWS).numpy().tolist() == LOGITS

    def test_numpy(self) -> None:
        assert model_file.forward(LAYERS, WEIGHTS, ROWS).tolist() == LOGITS

    def test_dropout_is_applied_where_it_stands(self) -> None:
        weights = {name: torch.from_numpy(value) for name, value in WEIGHTS.items()}

        out = torch_layers.forward(LAYERS, weights, torch.from_numpy(ROWS), lambda x, layer: x * 2 + layer)

        assert out.tolist() == [[32.0], [19.0]]
