"""The weights that a model starts from."""

import math

import numpy as np
import pytest

from app.spec.layers import ActivationLayer, DenseLayer, DropoutLayer, Layer
from workers.backends.initial import draw_weights, weight_shapes

LAYERS: list[Layer] = [
    DenseLayer("dense_1", 40),
    ActivationLayer("activation_1", "relu"),
    DropoutLayer("dropout_1", 0.2),
    DenseLayer("output", 3),
]


class TestDrawWeights:
    def test_names_and_shapes(self) -> None:
        weights = draw_weights(LAYERS, 10, 0)

        assert {name: value.shape for name, value in weights.items()} == weight_shapes(LAYERS, 10)
        assert list(weights) == ["dense_1.kernel", "dense_1.bias", "output.kernel", "output.bias"]
        assert weights["dense_1.kernel"].shape == (10, 40)
        assert weights["output.bias"].shape == (3,)

    def test_kernels_are_glorot_uniform(self) -> None:
        kernel = draw_weights([DenseLayer("output", 300)], 200, 0)["output.kernel"]

        limit = math.sqrt(6 / 500)
        assert np.abs(kernel).max() <= limit
        # The uniform distribution: mean 0, standard deviation limit / sqrt(3); five standard errors of 60 000 draws.
        assert abs(kernel.mean()) < 5 * limit / math.sqrt(3 * kernel.size)
        assert kernel.std() == pytest.approx(limit / math.sqrt(3), rel=0.01)

    def test_biases_are_zero(self) -> None:
        assert not draw_weights(LAYERS, 10, 0)["dense_1.bias"].any()

    def test_are_float64_so_that_a_cast_is_the_only_rounding(self) -> None:
        assert {value.dtype for value in draw_weights(LAYERS, 10, 0).values()} == {np.dtype(np.float64)}

    def test_seed_decides(self) -> None:
        first, again, other = (draw_weights(LAYERS, 10, seed)["dense_1.kernel"] for seed in (5, 5, 6))

        assert first.tolist() == again.tolist() != other.tolist()

    def test_layers_have_streams_of_their_own(self) -> None:
        deeper = [*LAYERS[:3], DenseLayer("dense_2", 40), LAYERS[3]]

        shallow_first = draw_weights(LAYERS, 10, 0)["dense_1.kernel"]
        deep = draw_weights(deeper, 10, 0)

        assert shallow_first.tolist() == deep["dense_1.kernel"].tolist()
        assert deep["dense_1.kernel"][0, :5].tolist() != deep["dense_2.kernel"][0, :5].tolist()

    def test_are_not_the_numbers_that_order_batches(self) -> None:
        # Both come from the seed: [seed, epoch] and [seed, place, a constant], which must not be the same stream.
        kernel = draw_weights([DenseLayer("output", 1)], 5, 1)["output.kernel"][:, 0]

        assert np.argsort(kernel).tolist() != np.argsort(np.random.default_rng([1, 0]).uniform(-1, 1, 5)).tolist()
