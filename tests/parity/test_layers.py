"""Every layer, in torch, in TensorFlow and as Keras has it: the same outputs and the same gradients.

In float64 equal definitions agree to 1e-12 or better, other ones differ by 1e-3; recurrent layers get 1e-8, the rest
1e-9, relative to the largest number of the tensor. A gradient is read off a step: plain SGD at rate 1 moves every
weight by it. A dense layer before the one under test passes on the gradient by its input. Float32 must only be sane.
"""

import functools
from dataclasses import dataclass, fields
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from app.spec.layers import (
    ACTIVATIONS,
    ActivationLayer,
    AvgPool2dLayer,
    BatchNormLayer,
    Conv1dLayer,
    Conv2dLayer,
    DenseLayer,
    EmbeddingLayer,
    FlattenLayer,
    GlobalAvgPool2dLayer,
    GruLayer,
    Layer,
    LayerNormLayer,
    LstmLayer,
    MaxPool2dLayer,
    ParallelLayer,
    ReshapeLayer,
    ResidualLayer,
)
from app.spec.shapes import infer
from app.spec.training import Sgd
from tests.parity.keras_layers import Reference
from tests.workers.backends.sessions import CPU
from workers.backends.base import DType, Program, Session, Steps, load_backend
from workers.backends.initial import Weights, draw_weights
from workers.data.arrays import Arrays
from workers.data.metrics import no_sums

ROWS = 5
BARS = {"lstm": 1e-8, "gru": 1e-8}

INPUT = (7, 6, 3)
"""A picture with an even and an odd side, so that `same` pads unevenly somewhere."""


@dataclass(frozen=True)
class Case:
    """Layers under test, and the shape of a row."""

    layers: tuple[Layer, ...]
    shape: tuple[int, ...] = INPUT
    whole: int = 0
    """Inputs are whole numbers below this, if it is above 0."""


def convolutions() -> dict[str, Case]:
    found = {
        f"conv2d {padding} k{kernel} s{strides} d{dilation}": Case(
            (Conv2dLayer("conv2d_1", 4, kernel, strides, padding, dilation),)
        )
        for padding in ("valid", "same")
        for kernel, strides, dilation in (
            ((3, 3), (1, 1), (1, 1)),
            ((3, 3), (2, 2), (1, 1)),
            ((2, 4), (2, 3), (1, 1)),
            ((2, 2), (1, 1), (1, 2)),
            ((1, 1), (2, 2), (1, 1)),
        )
    }
    found["conv2d without bias"] = Case((Conv2dLayer("conv2d_1", 4, (3, 3), use_bias=False),))
    for padding in ("valid", "same"):
        for kernel, strides, dilation in ((3, 1, 1), (4, 2, 1), (2, 3, 1), (3, 1, 2)):
            layer = Conv1dLayer("conv1d_1", 4, kernel, strides, padding, dilation)
            found[f"conv1d {padding} k{kernel} s{strides} d{dilation}"] = Case((layer,), (9, 3))
    return found


def pools() -> dict[str, Case]:
    found = {}
    for padding in ("valid", "same"):
        for size, strides in (((2, 2), (2, 2)), ((3, 3), (2, 2)), ((3, 2), (1, 1)), ((2, 3), (3, 2))):
            name = f"{padding} p{size} s{strides}"
            found[f"max_pool2d {name}"] = Case((MaxPool2dLayer("max_pool2d_1", size, strides, padding),))
            found[f"avg_pool2d {name}"] = Case((AvgPool2dLayer("avg_pool2d_1", size, strides, padding),))
    return found | {"global_avg_pool2d": Case((GlobalAvgPool2dLayer("global_avg_pool2d_1"),))}


CASES: dict[str, Case] = {
    "dense on rows": Case((DenseLayer("dense_1", 4),), (6,)),
    "dense on pictures": Case((DenseLayer("dense_1", 4),)),
    "dense without bias": Case((DenseLayer("dense_1", 4, use_bias=False),), (5, 3)),
    "flatten": Case((FlattenLayer("flatten_1"),)),
    "reshape": Case((ReshapeLayer("reshape_1", (9, 14)),)),
    **{name: Case((ActivationLayer("activation_1", name),), (6,)) for name in ACTIVATIONS},  # type: ignore[arg-type]
    "batch_norm on rows": Case((BatchNormLayer("batch_norm_1"),), (6,)),
    "batch_norm on sequences": Case((BatchNormLayer("batch_norm_1", 0.9, 1e-5),), (5, 3)),
    "batch_norm on pictures": Case((BatchNormLayer("batch_norm_1", 0.7),)),
    "layer_norm on rows": Case((LayerNormLayer("layer_norm_1"),), (6,)),
    "layer_norm on pictures": Case((LayerNormLayer("layer_norm_1", 1e-5),)),
    "embedding": Case((EmbeddingLayer("embedding_1", 9, 4),), (6,), 9),
    "embedding of pictures": Case((EmbeddingLayer("embedding_1", 9, 4),), (3, 2), 9),
    "lstm": Case((LstmLayer("lstm_1", 5),), (7, 3)),
    "lstm of sequences": Case((LstmLayer("lstm_1", 5, return_sequences=True),), (7, 3)),
    "gru": Case((GruLayer("gru_1", 5),), (7, 3)),
    "gru of sequences": Case((GruLayer("gru_1", 5, return_sequences=True),), (7, 3)),
    "residual": Case(
        (ResidualLayer("residual_1", (DenseLayer("dense_1", 3), ActivationLayer("activation_1", "tanh"))),)
    ),
    "residual with a shortcut": Case(
        (
            ResidualLayer(
                "residual_1",
                (Conv2dLayer("conv2d_1", 4, (3, 3), (2, 2), use_bias=False), BatchNormLayer("batch_norm_1")),
                (Conv2dLayer("conv2d_2", 4, (1, 1), (2, 2), use_bias=False),),
            ),
        )
    ),
    "parallel that concatenates": Case(
        (
            ParallelLayer(
                "parallel_1",
                ((Conv2dLayer("conv2d_1", 4, (3, 3)),), (MaxPool2dLayer("max_pool2d_1", (3, 3), (1, 1), "same"),), ()),
            ),
        )
    ),
    "parallel that adds": Case(
        (ParallelLayer("parallel_1", ((DenseLayer("dense_1", 4),), (DenseLayer("dense_2", 4),)), "add"),), (6,)
    ),
    "containers in containers": Case(
        (
            ResidualLayer(
                "residual_1",
                (
                    ParallelLayer(
                        "parallel_1",
                        ((ResidualLayer("residual_2", (DenseLayer("dense_1", 3),)),), (DenseLayer("dense_2", 2),)),
                    ),
                    LayerNormLayer("layer_norm_1"),
                    DenseLayer("dense_3", 3),
                ),
            ),
        ),
        (5, 3),
    ),
    **convolutions(),
    **pools(),
}


def model(case: Case) -> tuple[Layer, ...]:
    """Put a dense layer before the layers under test, if they take numbers, and an output after them.

    It has no bias: the gradient of a bias before batch norm is zero, and what one sees of it is rounding.
    """
    before: tuple[Layer, ...] = () if case.whole else (DenseLayer("dense_9", case.shape[-1], use_bias=False),)
    layers = (*before, *case.layers)
    flat = len(infer(layers, case.shape)[-1].output_shape) == 1 and case.layers[-1].type not in {"residual", "parallel"}
    return (*layers, *(() if flat else (FlattenLayer("flatten_9"),)), DenseLayer("output", 1))


def table(case: Case) -> Arrays:
    generator = np.random.default_rng(7)
    shape = (ROWS, *case.shape)
    x = generator.integers(0, case.whole, shape).astype(np.float64) if case.whole else generator.normal(size=shape)
    return Arrays(x=x, y=generator.normal(size=(ROWS, 1)))


def start(case: Case) -> Weights:
    """Draw weights; none is zero, or a bias in the wrong place would not show."""
    generator = np.random.default_rng(8)
    drawn = draw_weights(model(case), case.shape, 5)
    return {name: value + 0.1 * np.abs(generator.normal(size=value.shape)) for name, value in drawn.items()}


def opened(framework: str, case: Case, dtype: DType = "float64") -> Session:
    backend = load_backend(framework)
    backend.prepare([CPU], 1)
    program = Program(model(case), case.shape, "mse", Sgd(name="sgd"), ROWS, dtype=dtype)
    given = table(case)
    part = Arrays(x=given.x.astype(dtype), y=given.y.astype(dtype))
    return backend.open(program, start(case), {"train": part})


def step() -> Steps:
    return Steps(np.arange(ROWS)[None], np.ones(1), 0)


@functools.cache
def measured(framework: str, name: str, dtype: DType = "float64") -> tuple[NDArray[np.floating], Weights]:
    """Return the outputs before a step, and how far the step moved each weight: the gradient, or moving statistics."""
    session = opened(framework, CASES[name], dtype)
    outputs, before = session.outputs("train", 0, ROWS), session.weights()
    session.run(step(), no_sums("regression"))
    after = session.weights()
    return outputs, {name: before[name] - after[name] for name in before}


@functools.cache
def by_keras(name: str) -> tuple[NDArray[np.floating], Weights]:
    case = CASES[name]
    weights, given = start(case), table(case)
    reference = Reference(model(case), weights)
    outputs = np.asarray(reference.outputs(given.x, training=False))
    moved = reference.gradients(given.x, given.y)
    still = {name: variable for name, variable in reference.variables().items() if name not in moved}
    return outputs, moved | {name: weights[name] - variable.numpy() for name, variable in still.items()}


def largest(one: NDArray[np.floating], other: NDArray[np.floating]) -> float:
    """Return the largest difference as a share of the largest number."""
    return float(np.abs(one - other).max() / max(np.abs(other).max(), 1e-3))


def bar(case: Case) -> float:
    return max(BARS.get(layer.type, 1e-9) for layer in case.layers)


@pytest.mark.parametrize("name", CASES)
class TestFloat64:
    def test_torch_and_tensorflow_agree(self, name: str) -> None:
        (outputs, moved), (others, reference) = measured("torch", name), measured("tensorflow", name)

        assert largest(outputs, others) <= bar(CASES[name])
        assert moved.keys() == reference.keys()
        for weight, move in moved.items():
            assert largest(move, reference[weight]) <= bar(CASES[name]), weight

    def test_torch_agrees_with_keras_own_layers(self, name: str) -> None:
        (outputs, moved), (others, reference) = measured("torch", name), by_keras(name)

        assert largest(outputs, others) <= bar(CASES[name])
        assert moved.keys() == reference.keys()
        for weight, move in moved.items():
            assert np.abs(move).max() > 0, weight
            assert largest(move, reference[weight]) <= bar(CASES[name]), weight


@pytest.mark.parametrize("framework", ["torch", "tensorflow"])
@pytest.mark.parametrize("name", CASES)
class TestFloat32:
    def test_is_close_to_float64(self, name: str, framework: str) -> None:
        (outputs, moved), (others, reference) = measured(framework, name, "float32"), measured(framework, name)

        assert outputs.dtype == np.float32
        assert largest(outputs, others) <= 1e-5
        for weight, move in moved.items():
            assert largest(move, reference[weight]) <= 1e-4, weight


class TestCases:
    def test_cover_every_kind_of_layer_but_dropout(self) -> None:
        # Dropout has tests of its own: its masks are equal bit by bit.
        kinds = {layer.type for case in CASES.values() for layer in case.layers}

        assert kinds == {fields(kind)[-1].default for kind in get_args(Layer)} - {"dropout"}
