"""The whole inference of a model in NumPy: a third implementation beside the frameworks, and what predictions run.

Rows are (rows, *input shape), channels last. The arithmetic is that of the arrays given: float32 for a saved model,
float64 where a test or a check wants the rounding out of the way.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.spec.layers import (
    ActivationLayer,
    AvgPool2dLayer,
    BatchNormLayer,
    Conv1dLayer,
    Conv2dLayer,
    DenseLayer,
    EmbeddingLayer,
    GruLayer,
    Layer,
    LayerNormLayer,
    LstmLayer,
    MaxPool2dLayer,
    ParallelLayer,
    ReshapeLayer,
    ResidualLayer,
)
from workers.model_file.activations import ACTIVATIONS
from workers.model_file.recurrent import gru, lstm
from workers.model_file.windows import avg_pool, convolve1d, convolve2d, max_pool

Values = NDArray[np.floating]
Named = Mapping[str, Values]
"""Weights by name."""


class NotARow(ValueError):
    """An input has no row in an embedding's table; `place` is the row of the batch that has it."""

    def __init__(self, layer: EmbeddingLayer, value: float, place: int) -> None:
        super().__init__(
            f"Layer '{layer.name}' has a row for each whole number from 0 to {layer.input_dim - 1}; it was given "
            f"{value:g}."
        )
        self.place = place


def forward(layers: Sequence[Layer], weights: Named, x: Values) -> Values:
    """Return the logits: no dropout, and batch norm by its moving statistics.

    Raises:
        NotARow: an embedding was given something else than a whole number inside of its table.
    """
    for layer in layers:
        x = _STEPS[layer.type](layer, weights, x)
    return x


def _dense(layer: DenseLayer, weights: Named, x: Values) -> Values:
    y = x @ weights[f"{layer.name}.kernel"]
    return y + weights[f"{layer.name}.bias"] if layer.use_bias else y


def _activation(layer: ActivationLayer, _: Named, x: Values) -> Values:
    return ACTIVATIONS[layer.function](x)


def _batch_norm(layer: BatchNormLayer, weights: Named, x: Values) -> Values:
    mean, variance = weights[f"{layer.name}.moving_mean"], weights[f"{layer.name}.moving_variance"]
    return _normalised(layer, weights, x, mean, variance)


def _layer_norm(layer: LayerNormLayer, weights: Named, x: Values) -> Values:
    return _normalised(layer, weights, x, x.mean(axis=-1, keepdims=True), x.var(axis=-1, keepdims=True))


def _normalised(
    layer: BatchNormLayer | LayerNormLayer, weights: Named, x: Values, mean: Values, variance: Values
) -> Values:
    gamma, beta = weights[f"{layer.name}.gamma"], weights[f"{layer.name}.beta"]
    return np.asarray(gamma * (x - mean) / np.sqrt(variance + layer.epsilon) + beta)


def _flatten(_: Layer, __: Named, x: Values) -> Values:
    return x.reshape(len(x), int(np.prod(x.shape[1:])))


def _reshape(layer: ReshapeLayer, _: Named, x: Values) -> Values:
    return x.reshape(len(x), *layer.shape)


def _conv1d(layer: Conv1dLayer, weights: Named, x: Values) -> Values:
    return convolve1d(x, layer, weights[f"{layer.name}.kernel"], _bias(layer, weights))


def _conv2d(layer: Conv2dLayer, weights: Named, x: Values) -> Values:
    return convolve2d(x, layer, weights[f"{layer.name}.kernel"], _bias(layer, weights))


def _bias(layer: Conv1dLayer | Conv2dLayer, weights: Named) -> Values | None:
    return weights[f"{layer.name}.bias"] if layer.use_bias else None


def _max_pool(layer: MaxPool2dLayer, _: Named, x: Values) -> Values:
    return max_pool(x, layer.pool_size, layer.strides, layer.padding)


def _avg_pool(layer: AvgPool2dLayer, _: Named, x: Values) -> Values:
    return avg_pool(x, layer.pool_size, layer.strides, layer.padding)


def _embedding(layer: EmbeddingLayer, weights: Named, x: Values) -> Values:
    fits = (x == np.floor(x)) & (x >= 0) & (x < layer.input_dim)
    if not fits.all():
        raise NotARow(layer, float(x[~fits].flat[0]), int(np.argwhere(~fits)[0][0]))
    return weights[f"{layer.name}.embeddings"][x.astype(np.int64)]


def _recurrent(layer: LstmLayer | GruLayer, weights: Named, x: Values) -> Values:
    cell = lstm if isinstance(layer, LstmLayer) else gru
    kernel, recurrent, bias = (weights[f"{layer.name}.{part}"] for part in ("kernel", "recurrent_kernel", "bias"))
    return cell(x, kernel, recurrent, bias, sequences=layer.return_sequences)


def _residual(layer: ResidualLayer, weights: Named, x: Values) -> Values:
    return forward(layer.layers, weights, x) + forward(layer.shortcut, weights, x)


def _parallel(layer: ParallelLayer, weights: Named, x: Values) -> Values:
    outputs = [forward(branch, weights, x) for branch in layer.branches]
    return np.concatenate(outputs, axis=-1) if layer.merge == "concat" else np.asarray(sum(outputs[1:], outputs[0]))


_STEPS: Final[Mapping[str, Callable[[Any, Named, Values], Values]]] = {
    "dense": _dense,
    "activation": _activation,
    "dropout": lambda _, __, x: x,
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "flatten": _flatten,
    "reshape": _reshape,
    "conv1d": _conv1d,
    "conv2d": _conv2d,
    "max_pool2d": _max_pool,
    "avg_pool2d": _avg_pool,
    "global_avg_pool2d": lambda _, __, x: x.mean(axis=(1, 2)),
    "embedding": _embedding,
    "lstm": _recurrent,
    "gru": _recurrent,
    "residual": _residual,
    "parallel": _parallel,
}
