"""Each of our layers as one of Keras' own; the names and the shapes of the weights are the same in both."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import keras
import numpy as np
from numpy.typing import NDArray

from app.spec.layers import (
    ActivationLayer,
    Conv1dLayer,
    Conv2dLayer,
    GruLayer,
    Layer,
    LstmLayer,
    ParallelLayer,
    ResidualLayer,
)

Weights = Mapping[str, NDArray[np.floating]]

_ORDER: Final = (
    "kernel",
    "recurrent_kernel",
    "embeddings",
    "gamma",
    "beta",
    "bias",
    "moving_mean",
    "moving_variance",
)
"""The order in which a layer of Keras lists its weights."""


def add_layers(layers: Sequence[Layer], weights: Weights, x: Any) -> Any:  # noqa: ANN401 - Keras has no types
    """Apply layers to a symbolic tensor, and give each the weights that are ours."""
    for layer in layers:
        x = _apply(layer, weights, x)
    return x


def _apply(layer: Layer, weights: Weights, x: Any) -> Any:  # noqa: ANN401 - as above
    if isinstance(layer, ResidualLayer):
        straight, around = add_layers(layer.layers, weights, x), add_layers(layer.shortcut, weights, x)
        return keras.layers.Add(name=layer.name)([straight, around])
    if isinstance(layer, ParallelLayer):
        outputs = [add_layers(branch, weights, x) for branch in layer.branches]
        return outputs[0] if len(outputs) == 1 else _merge(layer)(outputs)
    made = _MAKERS[layer.type](layer)
    y = made(x)
    own = [weights[f"{layer.name}.{name}"] for name in _ORDER if f"{layer.name}.{name}" in weights]
    made.set_weights(own)
    return y


def _merge(layer: ParallelLayer) -> Any:  # noqa: ANN401 - as above
    if layer.merge == "concat":
        return keras.layers.Concatenate(axis=-1, name=layer.name)
    return keras.layers.Add(name=layer.name)


def _activation(layer: ActivationLayer) -> Any:  # noqa: ANN401 - as above
    if layer.function == "leaky_relu":
        return keras.layers.LeakyReLU(negative_slope=0.01, name=layer.name)
    return keras.layers.Activation(layer.function, name=layer.name)  # its gelu is the exact one


def _conv(layer: Conv1dLayer | Conv2dLayer) -> Any:  # noqa: ANN401 - as above
    kind = keras.layers.Conv1D if isinstance(layer, Conv1dLayer) else keras.layers.Conv2D
    return kind(
        layer.filters,
        layer.kernel_size,
        strides=layer.strides,
        padding=layer.padding,
        dilation_rate=layer.dilation,
        use_bias=layer.use_bias,
        data_format="channels_last",
        name=layer.name,
    )


def _pool(kind: Any) -> Callable[[Any], Any]:  # noqa: ANN401 - as above
    return lambda layer: kind(
        pool_size=layer.pool_size,
        strides=layer.strides,
        padding=layer.padding,
        data_format="channels_last",
        name=layer.name,
    )


def _recurrent(layer: LstmLayer | GruLayer) -> Any:  # noqa: ANN401 - as above
    settings: dict[str, Any] = {"return_sequences": layer.return_sequences, "name": layer.name}
    if isinstance(layer, GruLayer):
        return keras.layers.GRU(layer.units, reset_after=True, **settings)
    return keras.layers.LSTM(layer.units, **settings)


_MAKERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "dense": lambda layer: keras.layers.Dense(layer.units, use_bias=layer.use_bias, name=layer.name),
    "activation": _activation,
    "dropout": lambda layer: keras.layers.Dropout(layer.rate, name=layer.name),
    "batch_norm": lambda layer: keras.layers.BatchNormalization(
        momentum=layer.momentum, epsilon=layer.epsilon, name=layer.name
    ),
    "layer_norm": lambda layer: keras.layers.LayerNormalization(epsilon=layer.epsilon, name=layer.name),
    "flatten": lambda layer: keras.layers.Flatten(name=layer.name),
    "reshape": lambda layer: keras.layers.Reshape(layer.shape, name=layer.name),
    "conv1d": _conv,
    "conv2d": _conv,
    "max_pool2d": _pool(keras.layers.MaxPooling2D),
    "avg_pool2d": _pool(keras.layers.AveragePooling2D),
    "global_avg_pool2d": lambda layer: keras.layers.GlobalAveragePooling2D(
        data_format="channels_last", name=layer.name
    ),
    "embedding": lambda layer: keras.layers.Embedding(layer.input_dim, layer.output_dim, name=layer.name),
    "lstm": _recurrent,
    "gru": _recurrent,
}
