"""TensorFlow's layers against their definitions: by hand, or against TensorFlow's own gradient of a plain formula.

Whether they mean the same as torch's is tests/parity's to say.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from app.spec.layers import (
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
    ParallelLayer,
    ReshapeLayer,
    ResidualLayer,
)
from workers.backends.initial import draw_weights
from workers.backends.tensorflow.framework import tf
from workers.backends.tensorflow.group import Alone
from workers.backends.tensorflow.layers import forward
from workers.backends.tensorflow.normalisation import BatchStatistics

Tensor = Any
Named = dict[str, Tensor]


def normal(*shape: int, mean: float = 0.0, deviation: float = 1.0) -> NDArray[np.float64]:
    return np.random.default_rng(8).normal(mean, deviation, shape)


def variables(layer: Layer, shape: tuple[int, ...]) -> Named:
    """Draw weights of a layer, with biases and the like moved away from 0."""
    drawn = draw_weights([layer], shape, 5)
    return {name: tf.Variable(value + normal(*value.shape, deviation=0.1)) for name, value in drawn.items()}


def slopes(
    function: Callable[[Tensor], Tensor], x: NDArray[np.floating], weights: Named
) -> tuple[NDArray[np.floating], list[NDArray[np.floating]]]:
    """Return what a function gives, and the gradients of a weighted sum of it by x and the weights."""
    given = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(given)
        y = function(given)
        total = tf.reduce_sum(y * tf.reshape(tf.cos(tf.range(tf.size(y), dtype=y.dtype)), tf.shape(y)))
    found = tape.gradient(total, [given, *weights.values()])
    return y.numpy(), [tf.convert_to_tensor(gradient).numpy() for gradient in found]


def plain_lstm(layer: LstmLayer, weights: Named, x: Tensor) -> Tensor:
    """Hochreiter and Schmidhuber 1997 with the forget gate of Gers et al. 2000, step by step."""
    kernel, recurrent, bias = (weights[f"{layer.name}.{name}"] for name in ("kernel", "recurrent_kernel", "bias"))
    hidden = cell = tf.zeros([x.shape[0], layer.units], x.dtype)
    states = []
    for step in tf.unstack(x, axis=1):
        i, f, g, o = tf.split(step @ kernel + hidden @ recurrent + bias, 4, axis=1)
        cell = tf.sigmoid(f) * cell + tf.sigmoid(i) * tf.tanh(g)
        hidden = tf.sigmoid(o) * tf.tanh(cell)
        states.append(hidden)
    return tf.stack(states, axis=1) if layer.return_sequences else hidden


def plain_gru(layer: GruLayer, weights: Named, x: Tensor) -> Tensor:
    """Cho et al. 2014, with the reset gate after the product (the form of cuDNN), step by step."""
    kernel, recurrent, bias = (weights[f"{layer.name}.{name}"] for name in ("kernel", "recurrent_kernel", "bias"))
    hidden = tf.zeros([x.shape[0], layer.units], x.dtype)
    states = []
    for step in tf.unstack(x, axis=1):
        in_z, in_r, in_h = tf.split(step @ kernel + bias[0], 3, axis=1)
        own_z, own_r, own_h = tf.split(hidden @ recurrent + bias[1], 3, axis=1)
        z, new = tf.sigmoid(in_z + own_z), tf.tanh(in_h + tf.sigmoid(in_r + own_r) * own_h)
        hidden = z * hidden + (1 - z) * new
        states.append(hidden)
    return tf.stack(states, axis=1) if layer.return_sequences else hidden


class TestRecurrent:
    @pytest.mark.parametrize("steps", [1, 2, 7])
    @pytest.mark.parametrize("sequences", [False, True])
    def test_lstm_and_its_written_gradient_equal_the_plain_loop(self, steps: int, *, sequences: bool) -> None:
        layer = LstmLayer("lstm_1", 5, return_sequences=sequences)
        weights, x = variables(layer, (steps, 3)), normal(4, steps, 3)

        value, found = slopes(lambda given: forward([layer], weights, given), x, weights)
        reference, expected = slopes(lambda given: plain_lstm(layer, weights, given), x, weights)

        assert_allclose(value, reference, rtol=1e-12, atol=1e-14)
        for ours, theirs in zip(found, expected, strict=True):
            assert_allclose(ours, theirs, rtol=1e-10, atol=1e-13)

    @pytest.mark.parametrize("steps", [1, 2, 7])
    @pytest.mark.parametrize("sequences", [False, True])
    def test_gru_and_its_written_gradient_equal_the_plain_loop(self, steps: int, *, sequences: bool) -> None:
        layer = GruLayer("gru_1", 5, return_sequences=sequences)
        weights, x = variables(layer, (steps, 3)), normal(4, steps, 3)

        value, found = slopes(lambda given: forward([layer], weights, given), x, weights)
        reference, expected = slopes(lambda given: plain_gru(layer, weights, given), x, weights)

        assert_allclose(value, reference, rtol=1e-12, atol=1e-14)
        for ours, theirs in zip(found, expected, strict=True):
            assert_allclose(ours, theirs, rtol=1e-10, atol=1e-13)


class TestShapes:
    def test_dense_acts_on_the_last_axis_of_any_rank(self) -> None:
        layer = DenseLayer("dense_1", 2)
        weights, x = variables(layer, (3,)), normal(4, 5, 6, 3)

        found = forward([layer], weights, tf.constant(x)).numpy()

        kernel, bias = (value.numpy() for value in weights.values())
        assert_allclose(found, x @ kernel + bias, rtol=1e-12)

    def test_flatten_and_reshape_keep_the_order_of_numpy(self) -> None:
        x = np.arange(48.0).reshape(2, 2, 3, 4)

        found = forward([ReshapeLayer("reshape_1", (3, 8)), FlattenLayer("flatten_1")], {}, tf.constant(x)).numpy()

        assert found.tolist() == x.reshape(2, 24).tolist()

    def test_global_pool_is_the_mean_of_each_channel(self) -> None:
        x = normal(2, 3, 5, 4)

        found = forward([GlobalAvgPool2dLayer("global_avg_pool2d_1")], {}, tf.constant(x)).numpy()

        assert_allclose(found, x.mean(axis=(1, 2)), rtol=1e-12)


class TestConvolution:
    @pytest.mark.parametrize("dilation", [1, 2])
    @pytest.mark.parametrize("padding", ["same", "valid"])
    def test_conv1d_is_a_sum_of_shifted_products(self, padding: str, dilation: int) -> None:
        layer = Conv1dLayer("conv1d_1", 2, 3, 1, padding, dilation)  # type: ignore[arg-type]
        weights, x = variables(layer, (9, 4)), normal(3, 9, 4)

        found = forward([layer], weights, tf.constant(x)).numpy()

        kernel, bias = (value.numpy() for value in weights.values())
        sides = dilation if padding == "same" else 0
        padded = np.pad(x, ((0, 0), (sides, sides), (0, 0)))
        length = padded.shape[1] - 2 * dilation
        pieces = [padded[:, tap * dilation : tap * dilation + length] @ kernel[tap] for tap in range(3)]
        assert_allclose(found, sum(pieces) + bias, rtol=1e-11, atol=1e-12)

    def test_strides_with_same_padding_put_the_smaller_half_before(self) -> None:
        # 4 places, kernel 3, stride 2: one zero in all, and it comes after. A kernel of ones adds up its window.
        layer = Conv2dLayer("conv2d_1", 1, (3, 3), (2, 2), use_bias=False)
        x = np.arange(16.0).reshape(1, 4, 4, 1)

        found = forward([layer], {"conv2d_1.kernel": tf.ones([3, 3, 1, 1], tf.float64)}, tf.constant(x)).numpy()

        windows = [[x[0, r : r + 3, c : c + 3, 0].sum() for c in (0, 2)] for r in (0, 2)]
        assert found[0, :, :, 0].tolist() == windows


class TestNested:
    def test_residual_adds_its_two_ways(self) -> None:
        layer = ResidualLayer("residual_1", (DenseLayer("dense_1", 3),), (DenseLayer("dense_2", 3),))
        weights, x = variables(layer, (3,)), normal(4, 3)

        found = forward([layer], weights, tf.constant(x)).numpy()

        one, bias_one, two, bias_two = (value.numpy() for value in weights.values())
        assert_allclose(found, x @ one + bias_one + x @ two + bias_two, rtol=1e-12)

    def test_parallel_joins_or_adds_its_branches_and_an_empty_one_is_x(self) -> None:
        branches: tuple[tuple[Layer, ...], ...] = ((DenseLayer("dense_1", 3),), (), (DenseLayer("dense_2", 3),))
        weights = variables(ParallelLayer("parallel_1", branches), (3,))
        x = normal(4, 3)
        one, bias_one, two, bias_two = (value.numpy() for value in weights.values())
        outputs = [x @ one + bias_one, x, x @ two + bias_two]

        joined = forward([ParallelLayer("parallel_1", branches, "concat")], weights, tf.constant(x)).numpy()
        added = forward([ParallelLayer("parallel_1", branches, "add")], weights, tf.constant(x)).numpy()

        assert_allclose(joined, np.concatenate(outputs, axis=1), rtol=1e-12)
        assert_allclose(added, sum(outputs), rtol=1e-12, atol=1e-14)

    def test_dropouts_are_counted_depth_first(self) -> None:
        layers: list[Layer] = [
            DropoutLayer("dropout_1", 0.5),
            ResidualLayer("residual_1", (DropoutLayer("dropout_2", 0.5),), (DropoutLayer("dropout_3", 0.5),)),
            DropoutLayer("dropout_4", 0.5),
        ]
        seen: list[int] = []

        def drop(x: Tensor, layer: int) -> Tensor:
            seen.append(layer)
            return x

        forward(layers, {}, tf.ones([1, 2]), drop)

        assert seen == [0, 1, 2, 3]


class TestEmbedding:
    def test_looks_rows_up_and_a_repeated_one_gets_the_sum_of_its_slopes(self) -> None:
        layer = EmbeddingLayer("embedding_1", 4, 2)
        weights = variables(layer, (3,))
        table = weights["embedding_1.embeddings"]
        x = np.array([[0.0, 3.0, 3.0]])
        with tf.GradientTape() as tape:
            found = forward([layer], weights, tf.constant(x))
            total = tf.reduce_sum(found * [[[1.0], [2.0], [5.0]]])

        gradient = tf.convert_to_tensor(tape.gradient(total, table)).numpy()

        assert found.numpy().tolist() == [table.numpy()[[0, 3, 3]].tolist()]
        assert gradient.tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [7.0, 7.0]]


class TestNormalisation:
    def test_batch_norm_takes_the_moments_of_the_batch_and_moves_the_moving_ones(self) -> None:
        layer = BatchNormLayer("batch_norm_1", momentum=0.9, epsilon=0.01)
        weights, x = variables(layer, (5, 3)), normal(4, 5, 3, mean=2, deviation=3)
        gamma, beta, mean, variance = (value.numpy() for value in weights.values())
        group = Alone()
        statistics = BatchStatistics(group, group.share(4))

        found = forward([layer], weights, tf.constant(x), statistics=statistics).numpy()
        statistics.updates(weights)

        own_mean, own_variance = x.mean(axis=(0, 1)), x.var(axis=(0, 1))
        assert_allclose(found, gamma * (x - own_mean) / np.sqrt(own_variance + 0.01) + beta, rtol=1e-10, atol=1e-12)
        after = [value.numpy() for value in weights.values()]
        assert_allclose(after[2], 0.9 * mean + 0.1 * own_mean, rtol=1e-12)
        assert_allclose(after[3], 0.9 * variance + 0.1 * own_variance, rtol=1e-12)

    def test_batch_norm_uses_the_moving_ones_when_it_does_not_train(self) -> None:
        layer = BatchNormLayer("batch_norm_1")
        weights, x = variables(layer, (3,)), normal(4, 3)

        found = forward([layer], weights, tf.constant(x)).numpy()

        gamma, beta, mean, variance = (value.numpy() for value in weights.values())
        assert_allclose(found, gamma * (x - mean) / np.sqrt(variance + 1e-3) + beta, rtol=1e-10, atol=1e-12)

    def test_layer_norm_takes_the_moments_of_each_row(self) -> None:
        layer = LayerNormLayer("layer_norm_1")
        weights, x = variables(layer, (5, 3)), normal(4, 5, 3, mean=2, deviation=3)

        found = forward([layer], weights, tf.constant(x)).numpy()

        gamma, beta = (value.numpy() for value in weights.values())
        own_mean, own_variance = x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True)
        assert_allclose(found, gamma * (x - own_mean) / np.sqrt(own_variance + 1e-3) + beta, rtol=1e-10, atol=1e-12)
