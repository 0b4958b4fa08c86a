"""The forward pass in NumPy against torch, in float64 (tests/workers/exports/test_keras_file.py: against Keras)."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from torch.nn import functional

from app.spec.layers import (
    AvgPool2dLayer,
    BatchNormLayer,
    Conv1dLayer,
    Conv2dLayer,
    DropoutLayer,
    EmbeddingLayer,
    FlattenLayer,
    GruLayer,
    Layer,
    LayerNormLayer,
    LstmLayer,
    MaxPool2dLayer,
    ParallelLayer,
    ResidualLayer,
    Shape,
)
from tests.workers.exports.models import MODELS, PICTURE, SEQUENCE, TABLE, random_rows, random_weights
from workers.backends.initial import Weights
from workers.model_file import NotARow, forward, windows

Array = NDArray[np.float64]


def rows_of(shape: Shape, rows: int = 4) -> Array:
    return np.random.default_rng(2).normal(size=(rows, *shape))


def computed(layers: Sequence[Layer], x: Array) -> tuple[Array, Weights]:
    weights = random_weights(layers, x.shape[1:])
    return np.asarray(forward(layers, weights, x)), weights


def channels_first(x: Array) -> torch.Tensor:
    return torch.from_numpy(np.moveaxis(x, -1, 1).copy())


def channels_last(x: torch.Tensor) -> Array:
    return np.moveaxis(x.detach().numpy(), 1, -1)


def in_torchs_order(gates: NDArray[np.floating]) -> torch.Tensor:
    """From z, r, h to r, z, h, transposed."""
    z, r, h = np.split(gates, 3, axis=-1)
    return torch.from_numpy(np.concatenate([r, z, h], axis=-1).T.copy())


class TestAgainstTorch:
    @pytest.mark.parametrize(("strides", "dilation"), [((1, 1), (1, 1)), ((2, 1), (1, 1)), ((1, 1), (2, 3))])
    def test_convolution_of_a_picture(self, strides: tuple[int, int], dilation: tuple[int, int]) -> None:
        x = rows_of((9, 11, 3))
        found, weights = computed([Conv2dLayer("c", 4, (3, 2), strides, "valid", dilation)], x)

        kernel = torch.from_numpy(weights["c.kernel"].transpose(3, 2, 0, 1).copy())
        expected = functional.conv2d(
            channels_first(x), kernel, torch.from_numpy(weights["c.bias"]), strides, 0, dilation
        )

        assert_allclose(found, channels_last(expected), rtol=1e-12, atol=1e-13)

    def test_convolution_of_a_sequence_that_keeps_its_length(self) -> None:
        x = rows_of(SEQUENCE)
        found, weights = computed([Conv1dLayer("c", 4, 3, dilation=2)], x)

        kernel = torch.from_numpy(weights["c.kernel"].transpose(2, 1, 0).copy())
        # At stride 1 torch's own "same" is ours.
        expected = functional.conv1d(
            channels_first(x), kernel, torch.from_numpy(weights["c.bias"]), padding="same", dilation=2
        )

        assert_allclose(found, channels_last(expected), rtol=1e-12, atol=1e-13)

    def test_pools(self) -> None:
        x = rows_of(PICTURE)

        largest, _ = computed([MaxPool2dLayer("m", (3, 2), (2, 1))], x)
        mean, _ = computed([AvgPool2dLayer("a", (3, 2), (2, 1))], x)

        assert_allclose(largest, channels_last(functional.max_pool2d(channels_first(x), (3, 2), (2, 1))), rtol=0)
        assert_allclose(mean, channels_last(functional.avg_pool2d(channels_first(x), (3, 2), (2, 1))), rtol=1e-12)

    def test_normalisations(self) -> None:
        x = rows_of(SEQUENCE)
        batch, weights = computed([BatchNormLayer("b", epsilon=0.02)], x)
        layer, others = computed([LayerNormLayer("l", epsilon=0.02)], x)

        mean, variance, gamma, beta = (
            torch.from_numpy(weights[f"b.{name}"]) for name in ("moving_mean", "moving_variance", "gamma", "beta")
        )
        expected = functional.batch_norm(channels_first(x), mean, variance, gamma, beta, eps=0.02)
        by_layer = functional.layer_norm(
            torch.from_numpy(x), (5,), torch.from_numpy(others["l.gamma"]), torch.from_numpy(others["l.beta"]), 0.02
        )

        assert_allclose(batch, channels_last(expected), rtol=1e-11, atol=1e-12)
        assert_allclose(layer, by_layer.numpy(), rtol=1e-11, atol=1e-12)

    def test_lstm(self) -> None:
        x = rows_of(SEQUENCE)
        found, weights = computed([LstmLayer("r", 6, return_sequences=True)], x)

        cell = torch.nn.LSTM(5, 6, batch_first=True, dtype=torch.float64)
        cell.load_state_dict(  # torch has the same gates in the same order, and a second bias
            {
                "weight_ih_l0": torch.from_numpy(weights["r.kernel"].T.copy()),
                "weight_hh_l0": torch.from_numpy(weights["r.recurrent_kernel"].T.copy()),
                "bias_ih_l0": torch.from_numpy(weights["r.bias"]),
                "bias_hh_l0": torch.zeros(24, dtype=torch.float64),
            }
        )

        assert_allclose(found, cell(torch.from_numpy(x))[0].detach().numpy(), rtol=1e-11, atol=1e-13)

    def test_gru(self) -> None:
        x = rows_of(SEQUENCE)
        found, weights = computed([GruLayer("r", 6, return_sequences=True)], x)

        cell = torch.nn.GRU(5, 6, batch_first=True, dtype=torch.float64)
        cell.load_state_dict(
            {
                "weight_ih_l0": in_torchs_order(weights["r.kernel"]),
                "weight_hh_l0": in_torchs_order(weights["r.recurrent_kernel"]),
                "bias_ih_l0": in_torchs_order(weights["r.bias"][0]),
                "bias_hh_l0": in_torchs_order(weights["r.bias"][1]),
            }
        )

        assert_allclose(found, cell(torch.from_numpy(x))[0].detach().numpy(), rtol=1e-11, atol=1e-13)

    def test_last_output_is_the_end_of_all(self) -> None:
        x = rows_of(SEQUENCE)
        for kind in (LstmLayer, GruLayer):
            every, _ = computed([kind("r", 6, return_sequences=True)], x)
            last, _ = computed([kind("r", 6)], x)

            assert_allclose(last, every[:, -1], rtol=0)


class TestPadding:
    # TensorFlow's rule: ceil(n / s) outputs, the odd zero behind (app.spec.layers).
    @pytest.mark.parametrize(
        ("size", "kernel", "stride", "dilation", "padding"),
        [(5, 3, 1, 1, (1, 1)), (5, 2, 1, 1, (0, 1)), (6, 3, 2, 1, (0, 1)), (5, 3, 2, 1, (1, 1)), (7, 3, 1, 2, (2, 2))],
    )
    def test_same_padding(self, size: int, kernel: int, stride: int, dilation: int, padding: tuple[int, int]) -> None:
        assert windows.same_padding(size, kernel, stride, dilation) == padding

    def test_mean_does_not_count_padding_and_maximum_does_not_see_it(self) -> None:
        x = np.full((1, 3, 3, 1), -5.0)

        mean, _ = computed([AvgPool2dLayer("a", (2, 2), (2, 2), "same")], x)
        largest, _ = computed([MaxPool2dLayer("m", (2, 2), (2, 2), "same")], x)

        assert mean.ravel().tolist() == largest.ravel().tolist() == [-5.0] * 4


class TestShapeOfTheWork:
    @pytest.mark.parametrize("name", ["conv2d same", "avg_pool2d", "max_pool2d"])
    def test_rows_in_blocks_are_the_same_rows(self, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        shape, layers = MODELS[name]
        weights = random_weights(layers, shape)
        whole = forward(layers, weights, random_rows(name, 7))
        monkeypatch.setattr(windows, "_BLOCK", 1000)  # fewer values than two rows have

        assert_allclose(forward(layers, weights, random_rows(name, 7)), whole, rtol=1e-13)

    @pytest.mark.parametrize("name", MODELS)
    def test_float32_stays_float32(self, name: str) -> None:
        shape, layers = MODELS[name]
        weights = {key: value.astype(np.float32) for key, value in random_weights(layers, shape).items()}

        assert forward(layers, weights, random_rows(name).astype(np.float32)).dtype == np.float32

    @pytest.mark.parametrize("name", MODELS)
    def test_no_rows_give_no_outputs(self, name: str) -> None:
        shape, layers = MODELS[name]

        assert len(forward(layers, random_weights(layers, shape), random_rows(name, 0))) == 0

    def test_containers_without_layers_pass_on_what_they_get(self) -> None:
        x = rows_of(TABLE)

        doubled, _ = computed([ResidualLayer("r", ())], x)
        joined, _ = computed([ParallelLayer("p", ((), ()))], x)

        assert_allclose(doubled, 2 * x, rtol=0)
        assert_allclose(joined, np.concatenate([x, x], axis=1), rtol=0)

    def test_dropout_does_nothing(self) -> None:
        x = rows_of(TABLE)

        assert computed([DropoutLayer("d", 0.9)], x)[0] is x

    def test_flatten_keeps_channels_together(self) -> None:
        x = np.arange(8.0).reshape(1, 2, 2, 2)

        assert computed([FlattenLayer("f")], x)[0].tolist() == [[0, 1, 2, 3, 4, 5, 6, 7]]


class TestEmbedding:
    @pytest.mark.parametrize("value", [-1.0, 11.0, 0.5, np.nan])
    def test_number_without_a_row_is_refused_with_its_place(self, value: float) -> None:
        layers = [EmbeddingLayer("embedding_1", 11, 3)]
        x = np.zeros((4, 7))
        x[2, 5] = value

        with pytest.raises(NotARow, match=r"from 0 to 10; it was given") as caught:
            forward(layers, random_weights(layers, (7,)), x)
        assert caught.value.place == 2
