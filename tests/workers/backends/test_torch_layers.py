"""What is torch's own about our layers: padding, empty batches, moments over several devices, dropout by global row.

That each layer means what TensorFlow's and Keras' mean is in tests/parity/test_layers.py.
"""

import itertools

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose
from torch import Tensor

from app.spec.layers import (
    AvgPool2dLayer,
    BatchNormLayer,
    Conv1dLayer,
    Conv2dLayer,
    DenseLayer,
    DropoutLayer,
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
from workers.backends.hashing import kept, places, step_keys
from workers.backends.initial import draw_weights, weight_facts
from workers.backends.torch import normalisation
from workers.backends.torch.convolution import edges
from workers.backends.torch.dropout import Dropout
from workers.backends.torch.group import Alone, share
from workers.backends.torch.layers import forward
from workers.backends.torch.normalisation import BatchStatistics

PICTURE = (5, 4, 3)
SEQUENCE = (6, 3)

LAYERS: list[tuple[Layer, tuple[int, ...]]] = [
    (DenseLayer("dense_1", 4), PICTURE),
    (BatchNormLayer("batch_norm_1"), PICTURE),
    (LayerNormLayer("layer_norm_1"), SEQUENCE),
    (FlattenLayer("flatten_1"), PICTURE),
    (ReshapeLayer("reshape_1", (10, 6)), PICTURE),
    (Conv1dLayer("conv1d_1", 4, 3, 2), SEQUENCE),
    (Conv2dLayer("conv2d_1", 4, (3, 3), (2, 2)), PICTURE),
    (MaxPool2dLayer("max_pool2d_1", padding="same"), PICTURE),
    (AvgPool2dLayer("avg_pool2d_1", padding="same"), PICTURE),
    (GlobalAvgPool2dLayer("global_avg_pool2d_1"), PICTURE),
    (EmbeddingLayer("embedding_1", 7, 4), (6,)),
    (LstmLayer("lstm_1", 4), SEQUENCE),
    (GruLayer("gru_1", 4, return_sequences=True), SEQUENCE),
    (ResidualLayer("residual_1", (DenseLayer("dense_1", 3),)), PICTURE),
    (ParallelLayer("parallel_1", ((DenseLayer("dense_1", 3),), ())), PICTURE),
]


def weights_of(layers: tuple[Layer, ...], shape: tuple[int, ...]) -> dict[str, Tensor]:
    facts = weight_facts(layers, shape)
    return {
        name: torch.from_numpy(value).requires_grad_(facts[name].trained)
        for name, value in draw_weights(layers, shape, 1).items()
    }


def rows(count: int, shape: tuple[int, ...]) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=(count, *shape)))


class TestEdges:
    @pytest.mark.parametrize("size", range(1, 12))
    def test_same_gives_the_sizes_and_sides_of_tensorflow(self, size: int) -> None:
        # ceil(n / s) windows, and where the padding is odd, the smaller half before.
        for kernel, stride, dilation in itertools.product(range(1, 5), range(1, 5), range(1, 4)):
            (before, after), _ = edges("same", (size, 1), (kernel, 1), (stride, 1), (dilation, 1))
            reach = (kernel - 1) * dilation + 1
            windows = (size + before + after - reach) // stride + 1

            assert 0 <= after - before <= 1
            assert windows == -(-size // stride)

    def test_valid_pads_nothing(self) -> None:
        assert edges("valid", (7, 7), (3, 3), (2, 2)) == ((0, 0), (0, 0))


class TestEmptyBatch:
    @pytest.mark.parametrize(("layer", "shape"), LAYERS, ids=lambda value: getattr(value, "type", ""))
    def test_passes_and_has_gradients_of_zero(self, layer: Layer, shape: tuple[int, ...]) -> None:
        # A rank whose share of a batch is empty makes the same calls as the others.
        weights = weights_of((layer,), shape)
        one = forward((layer,), weights, rows(1, shape).abs())

        none = forward((layer,), weights, rows(1, shape).abs()[:0])

        assert none.shape == (0, *one.shape[1:])
        used = [weight for weight in weights.values() if weight.requires_grad]
        if used:
            slopes = torch.autograd.grad(none.sum(), used, allow_unused=True, materialize_grads=True)
            assert not any(slope.any() for slope in slopes)


class TestPools:
    def test_mean_does_not_count_padding(self) -> None:
        # By hand: a row of 1, 2, 3 in windows of two, the last of which holds 3 alone.
        x = torch.tensor([1.0, 2.0, 3.0]).reshape(1, 1, 3, 1)

        found = forward((AvgPool2dLayer("avg_pool2d_1", (1, 2), (1, 2), "same"),), {}, x)

        assert found.ravel().tolist() == [1.5, 3.0]

    def test_maximum_is_never_padding(self) -> None:
        x = torch.tensor([-1.0, -2.0, -3.0]).reshape(1, 1, 3, 1)

        found = forward((MaxPool2dLayer("max_pool2d_1", (1, 2), (1, 2), "same"),), {}, x)

        assert found.ravel().tolist() == [-1.0, -3.0]


class TestBatchStatistics:
    def normalised(self, x: Tensor, epsilon: float = 1e-3, momentum: float = 0.9) -> tuple[Tensor, dict[str, Tensor]]:
        layer = BatchNormLayer("batch_norm_1", momentum, epsilon)
        weights = {name: value.detach() for name, value in weights_of((layer,), tuple(x.shape[1:])).items()}
        return forward((layer,), weights, x, statistics=BatchStatistics(Alone(), len(x))), weights

    def test_moving_statistics_are_biased_and_go_the_rest_of_the_way(self) -> None:
        # By hand: 1, 2, 6 have mean 3 and biased variance 14/3; a tenth of the way from 0 and from 1.
        _, weights = self.normalised(torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64))

        assert weights["batch_norm_1.moving_mean"].item() == pytest.approx(0.3, rel=1e-12)
        assert weights["batch_norm_1.moving_variance"].item() == pytest.approx(0.9 + 0.1 * 14 / 3, rel=1e-12)

    def test_a_batch_of_one_value_has_no_variance(self) -> None:
        y, weights = self.normalised(torch.tensor([[5.0]], dtype=torch.float64))

        assert y.tolist() == [[0.0]]
        assert weights["batch_norm_1.moving_variance"].item() == pytest.approx(0.9, rel=1e-12)

    def test_every_axis_but_the_last_counts(self) -> None:
        x = rows(4, PICTURE)

        y, _ = self.normalised(x, 1e-5)

        assert_allclose(y.mean(dim=(0, 1, 2)).numpy(), np.zeros(3), atol=1e-12)
        assert_allclose(y.var(dim=(0, 1, 2), correction=0).numpy(), np.ones(3), rtol=1e-4)

    @pytest.mark.parametrize("offset", [0.0, 1e4])
    def test_over_devices_is_what_torchs_kernel_does(self, offset: float) -> None:
        # With one device in the group, so that the two formulas are all there is to compare; value and gradients.
        found = []
        for moments in (normalisation._by_kernel, normalisation._over_devices):
            x = (rows(9, (4,)) + offset).requires_grad_()
            gamma = torch.tensor([0.5, 1.0, 2.0, -1.0], dtype=torch.float64, requires_grad=True)
            beta = torch.ones(4, dtype=torch.float64, requires_grad=True)
            group = (Alone(),) if moments is normalisation._over_devices else ()
            y, mean, variance = moments(x, gamma, beta, 1e-3, 9, *group)
            slopes = torch.autograd.grad((y * rows(9, (4,)).cos()).sum(), [x, gamma, beta])
            found.append([y.detach(), mean, variance, *slopes])

        for one, other in zip(*found, strict=True):
            assert_allclose(one.numpy(), other.numpy(), rtol=1e-9, atol=1e-9)

    def test_gradient_by_finite_differences(self) -> None:
        x = rows(5, (2,)).requires_grad_()
        gamma = torch.tensor([0.5, 2.0], dtype=torch.float64, requires_grad=True)
        beta = torch.zeros(2, dtype=torch.float64, requires_grad=True)

        def y(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
            return normalisation._over_devices(x, gamma, beta, 1e-3, 5, Alone())[0]

        # The moments are differentiated inside of the backward pass, though they are computed outside of the graph.
        assert torch.autograd.gradcheck(y, (x, gamma, beta))


class TestShare:
    @pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
    def test_cuts_as_numpy_does(self, world: int) -> None:
        for count in range(20):
            expected = [piece.tolist() for piece in np.array_split(np.arange(count), world)]

            assert [list(range(count))[share(count, rank, world)] for rank in range(world)] == expected


class TestDropout:
    def test_rows_of_a_share_have_the_masks_of_the_whole_batch(self) -> None:
        layers = [(DropoutLayer("dropout_1", 0.4), 12), (DropoutLayer("dropout_2", 0.4), 5)]
        dropout = Dropout(layers, 8, torch.device("cpu"))
        key = int(step_keys(3, 1, 0, 1).view(np.int32)[0, 0])

        for layer, (_, width) in enumerate(layers):
            whole = dropout.apply(torch.ones(8, width), layer, key)
            pieces = [dropout.apply(torch.ones(count, width), layer, key, first) for first, count in ((0, 3), (3, 5))]
            assert torch.cat(pieces).tolist() == whole.tolist()

    def test_columns_are_the_places_in_the_flattened_row(self) -> None:
        dropout = Dropout([(DropoutLayer("dropout_1", 0.4), 60)], 4, torch.device("cpu"))
        key = step_keys(3, 1, 0, 1)

        found = dropout.apply(torch.ones(4, *PICTURE), 0, int(key.view(np.int32)[0, 0]))

        expected = kept(places(4, 60), key[0, 0], 0.4).reshape(4, *PICTURE)
        assert (found.numpy() > 0).tolist() == expected.tolist()

    def test_layers_are_counted_depth_first(self) -> None:
        layers = (
            DropoutLayer("dropout_1", 0.5),
            ResidualLayer(
                "residual_1",
                (DropoutLayer("dropout_2", 0.5), ParallelLayer("parallel_1", ((DropoutLayer("dropout_3", 0.5),),))),
                (DropoutLayer("dropout_4", 0.5),),
            ),
            DropoutLayer("dropout_5", 0.5),
        )
        seen: list[int] = []

        def drop(x: Tensor, layer: int) -> Tensor:
            seen.append(layer)
            return x * 10

        found = forward(layers, {}, torch.ones(1, 1), drop)

        assert seen == [0, 1, 2, 3, 4]
        assert found.item() == 10 * (100 + 10) * 10
