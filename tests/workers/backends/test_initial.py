"""The weights that a model starts from."""

import hashlib
import math
from itertools import pairwise

import numpy as np
import pytest
from numpy.typing import NDArray

from app.spec.layers import (
    ActivationLayer,
    BatchNormLayer,
    Conv1dLayer,
    Conv2dLayer,
    DenseLayer,
    DropoutLayer,
    EmbeddingLayer,
    FlattenLayer,
    GruLayer,
    Layer,
    LayerNormLayer,
    LstmLayer,
    ParallelLayer,
    ReshapeLayer,
    ResidualLayer,
    Shape,
)
from workers.backends.initial import draw_weights, weight_facts, weight_shapes

LAYERS: list[Layer] = [
    DenseLayer("dense_1", 40),
    ActivationLayer("activation_1", "relu"),
    DropoutLayer("dropout_1", 0.2),
    DenseLayer("output", 3),
]

NESTED: list[Layer] = [
    ReshapeLayer("reshape_1", (8, 8, 1)),
    Conv2dLayer("conv2d_1", 4, (3, 3), use_bias=False),
    BatchNormLayer("batch_norm_1"),
    ResidualLayer(
        "residual_1",
        (Conv2dLayer("conv2d_2", 6, (3, 3)), ParallelLayer("parallel_1", ((), (DenseLayer("dense_1", 2),)))),
        (Conv2dLayer("conv2d_3", 8, (1, 1)),),
    ),
    FlattenLayer("flatten_1"),
    LayerNormLayer("layer_norm_1"),
    DenseLayer("output", 3),
]


def uniform(value: NDArray[np.floating], limit: float) -> bool:
    """Whether values look uniform within the limit: mean 0 (5 standard errors), deviation limit / sqrt(3) (3 %)."""
    centred = abs(value.mean()) < 5 * limit / math.sqrt(3 * value.size)
    return bool(centred and np.abs(value).max() <= limit and abs(value.std() / (limit / math.sqrt(3)) - 1) < 0.03)


class TestNames:
    def test_names_and_shapes(self) -> None:
        weights = draw_weights(LAYERS, (10,), 0)

        assert {name: value.shape for name, value in weights.items()} == weight_shapes(LAYERS, (10,))
        assert list(weights) == ["dense_1.kernel", "dense_1.bias", "output.kernel", "output.bias"]
        assert weights["dense_1.kernel"].shape == (10, 40)
        assert weights["output.bias"].shape == (3,)

    def test_nested_layers_come_depth_first(self) -> None:
        weights = draw_weights(NESTED, (64,), 0)

        assert {name: value.shape for name, value in weights.items()} == weight_shapes(NESTED, (64,))
        names = list(dict.fromkeys(name.split(".")[0] for name in weights))
        assert names == [
            "conv2d_1",
            "batch_norm_1",
            "conv2d_2",
            "dense_1",
            "conv2d_3",
            "layer_norm_1",
            "output",
        ]
        assert weights["dense_1.kernel"].shape == (6, 2)
        assert weights["output.kernel"].shape == (8 * 8 * 8, 3)

    def test_moving_statistics_are_drawn_but_not_trained(self) -> None:
        facts = weight_facts(NESTED, (64,))
        still = [name for name, fact in facts.items() if not fact.trained]
        assert still == ["batch_norm_1.moving_mean", "batch_norm_1.moving_variance"]
        assert facts.keys() == draw_weights(NESTED, (64,), 0).keys()


class TestKernels:
    # Glorot and Bengio 2010, eq. 16, with the fans that Keras' VarianceScaling takes from the shape.
    @pytest.mark.parametrize(
        ("layer", "shape", "fans"),
        [
            (DenseLayer("x", 300), (200,), 500),
            (Conv1dLayer("x", 60, 5), (40, 30), 5 * (30 + 60)),
            (Conv2dLayer("x", 60, (3, 5)), (40, 40, 30), 15 * (30 + 60)),
            (LstmLayer("x", 60), (5, 80), 80 + 240),
            (GruLayer("x", 60), (5, 80), 80 + 180),
        ],
    )
    def test_kernels_are_glorot_uniform(self, layer: Layer, shape: Shape, fans: int) -> None:
        assert uniform(draw_weights([layer], shape, 0)["x.kernel"], math.sqrt(6 / fans))

    @pytest.mark.parametrize("layer", [LstmLayer("x", 20), GruLayer("x", 20)])
    def test_recurrent_kernels_have_orthonormal_rows(self, layer: Layer) -> None:
        kernel = draw_weights([layer], (5, 3), 0)["x.recurrent_kernel"]

        np.testing.assert_allclose(kernel @ kernel.T, np.eye(20), atol=1e-12)

    def test_recurrent_kernels_prefer_no_direction(self) -> None:
        # Uniform over the orthogonal matrices (Mezzadri 2007): without fixing R's signs the diagonal would have one.
        firsts = [draw_weights([LstmLayer("x", 2)], (1, 1), seed)["x.recurrent_kernel"][0, 0] for seed in range(400)]

        assert abs(np.mean(firsts)) < 5 / math.sqrt(8 * 400)  # of 8 columns: variance 1 / 8

    def test_embeddings_are_uniform_within_a_twentieth(self) -> None:
        assert uniform(draw_weights([EmbeddingLayer("x", 300, 20)], (4,), 0)["x.embeddings"], 0.05)


class TestOtherWeights:
    def test_biases_are_zero(self) -> None:
        assert not draw_weights(LAYERS, (10,), 0)["dense_1.bias"].any()

    def test_the_forget_gates_of_an_lstm_start_open(self) -> None:
        # Jozefowicz et al. 2015; gates i, f, g, o.
        assert draw_weights([LstmLayer("x", 2)], (1, 1), 0)["x.bias"].tolist() == [0, 0, 1, 1, 0, 0, 0, 0]
        assert not draw_weights([GruLayer("x", 2)], (1, 1), 0)["x.bias"].any()

    def test_normalisation_starts_as_the_identity(self) -> None:
        weights = draw_weights(NESTED, (64,), 0)

        values = {name: set(weights[f"batch_norm_1.{name}"].tolist()) for name in ("gamma", "beta")}
        moving = {name: set(weights[f"batch_norm_1.moving_{name}"].tolist()) for name in ("mean", "variance")}
        assert values == {"gamma": {1.0}, "beta": {0.0}}
        assert moving == {"mean": {0.0}, "variance": {1.0}}
        assert set(weights["layer_norm_1.gamma"].tolist()) == {1.0}

    def test_are_float64_so_that_a_cast_is_the_only_rounding(self) -> None:
        for layers, shape in ((LAYERS, (10,)), (NESTED, (64,))):
            assert {value.dtype for value in draw_weights(layers, shape, 0).values()} == {np.dtype(np.float64)}


class TestStreams:
    def test_seed_decides(self) -> None:
        first, again, other = (draw_weights(LAYERS, (10,), seed)["dense_1.kernel"] for seed in (5, 5, 6))

        assert first.tolist() == again.tolist() != other.tolist()

    def test_layers_have_streams_of_their_own(self) -> None:
        deeper = [*LAYERS[:3], DenseLayer("dense_2", 40), LAYERS[3]]

        shallow_first = draw_weights(LAYERS, (10,), 0)["dense_1.kernel"]
        deep = draw_weights(deeper, (10,), 0)

        assert shallow_first.tolist() == deep["dense_1.kernel"].tolist()
        assert deep["dense_1.kernel"][0, :5].tolist() != deep["dense_2.kernel"][0, :5].tolist()

    def test_no_two_kernels_are_drawn_alike(self) -> None:
        kernels = [value for name, value in draw_weights(NESTED, (64,), 0).items() if name.endswith("kernel")]
        signs = [np.sign(kernel.ravel()[:12]).tolist() for kernel in kernels]
        assert len(kernels) == 5
        assert all(one != other for one, other in pairwise(signs))

    def test_are_not_the_numbers_that_order_batches(self) -> None:
        # Both come from the seed: [seed, epoch] and [seed, place, a constant], which must not be the same stream.
        kernel = draw_weights([DenseLayer("output", 1)], (5,), 1)["output.kernel"][:, 0]

        assert np.argsort(kernel).tolist() != np.argsort(np.random.default_rng([1, 0]).uniform(-1, 1, 5)).tolist()

    def test_dense_models_start_from_the_numbers_they_always_had(self) -> None:
        # Written down by the first version; a resumed job and a job from its seed must agree after an upgrade.
        weights = draw_weights(LAYERS, (10,), 7)
        digest = hashlib.sha256(b"".join(value.tobytes() for value in weights.values())).hexdigest()

        assert digest == "74166d1d77960dc0011de9fbb5f68ddf391decf6ff6db99d294862119ccb51f7"
