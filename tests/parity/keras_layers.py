"""Models of `app.spec.layers` built from Keras' own layers: a reference that shares no line with either backend.

Keras keeps its channels and weights as we name and shape ours, so weights are copied without a change. Everything is
float64, as in the tests that use it.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import keras
import tensorflow as tf

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
    ResidualLayer,
    walk,
)
from workers.backends.initial import Weights

DTYPE: Final = "float64"

ORDER: Final[Mapping[str, tuple[str, ...]]] = {
    "dense": ("kernel", "bias"),
    "conv1d": ("kernel", "bias"),
    "conv2d": ("kernel", "bias"),
    "batch_norm": ("gamma", "beta", "moving_mean", "moving_variance"),
    "layer_norm": ("gamma", "beta"),
    "embedding": ("embeddings",),
    "lstm": ("kernel", "recurrent_kernel", "bias"),
    "gru": ("kernel", "recurrent_kernel", "bias"),
}
"""The weights of a layer in the order in which Keras lists them."""


def _dense(layer: DenseLayer) -> Any:
    return keras.layers.Dense(layer.units, use_bias=layer.use_bias, dtype=DTYPE)


def _conv1d(layer: Conv1dLayer) -> Any:
    return keras.layers.Conv1D(
        layer.filters,
        layer.kernel_size,
        strides=layer.strides,
        padding=layer.padding,
        dilation_rate=layer.dilation,
        use_bias=layer.use_bias,
        dtype=DTYPE,
    )


def _conv2d(layer: Conv2dLayer) -> Any:
    return keras.layers.Conv2D(
        layer.filters,
        layer.kernel_size,
        strides=layer.strides,
        padding=layer.padding,
        dilation_rate=layer.dilation,
        use_bias=layer.use_bias,
        dtype=DTYPE,
    )


def _max_pool(layer: MaxPool2dLayer) -> Any:
    return keras.layers.MaxPooling2D(layer.pool_size, strides=layer.strides, padding=layer.padding, dtype=DTYPE)


def _avg_pool(layer: AvgPool2dLayer) -> Any:
    return keras.layers.AveragePooling2D(layer.pool_size, strides=layer.strides, padding=layer.padding, dtype=DTYPE)


def _batch_norm(layer: BatchNormLayer) -> Any:
    return keras.layers.BatchNormalization(momentum=layer.momentum, epsilon=layer.epsilon, dtype=DTYPE)


def _layer_norm(layer: LayerNormLayer) -> Any:
    return keras.layers.LayerNormalization(epsilon=layer.epsilon, dtype=DTYPE)


def _embedding(layer: EmbeddingLayer) -> Any:
    return keras.layers.Embedding(layer.input_dim, layer.output_dim, dtype=DTYPE)


def _lstm(layer: LstmLayer) -> Any:
    return keras.layers.LSTM(layer.units, return_sequences=layer.return_sequences, dtype=DTYPE)


def _gru(layer: GruLayer) -> Any:
    return keras.layers.GRU(layer.units, return_sequences=layer.return_sequences, reset_after=True, dtype=DTYPE)


def _activation(layer: ActivationLayer) -> Any:
    if layer.function == "leaky_relu":
        return keras.layers.LeakyReLU(negative_slope=0.01, dtype=DTYPE)
    if layer.function == "gelu":  # Keras takes its root of 2 from float32
        return keras.layers.Activation(lambda x: 0.5 * x * (1.0 + tf.math.erf(x / math.sqrt(2.0))), dtype=DTYPE)
    return keras.layers.Activation(layer.function, dtype=DTYPE)


MAKERS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "dense": _dense,
    "activation": _activation,
    "conv1d": _conv1d,
    "conv2d": _conv2d,
    "max_pool2d": _max_pool,
    "avg_pool2d": _avg_pool,
    "global_avg_pool2d": lambda _: keras.layers.GlobalAveragePooling2D(dtype=DTYPE),
    "batch_norm": _batch_norm,
    "layer_norm": _layer_norm,
    "flatten": lambda _: keras.layers.Flatten(dtype=DTYPE),
    "reshape": lambda layer: keras.layers.Reshape(layer.shape, dtype=DTYPE),
    "embedding": _embedding,
    "lstm": _lstm,
    "gru": _gru,
}

MERGES: Final[Mapping[str, Callable[..., Any]]] = {"concat": keras.layers.Concatenate, "add": keras.layers.Add}


class Reference:
    """A model of Keras' layers, for one batch: its outputs, its gradients, what becomes of moving statistics."""

    def __init__(self, layers: Sequence[Layer], weights: Weights) -> None:
        self._layers = layers
        self._weights = weights
        self._made: dict[str, Any] = {}
        self._types = {layer.name: layer.type for layer in walk(layers)}

    def outputs(self, x: Any, *, training: bool) -> Any:
        return self._through(self._layers, tf.constant(x), training)

    def gradients(self, x: Any, y: Any) -> Weights:
        """Return the gradient of the mean squared error by each trained weight, in training mode."""
        self.outputs(x, training=False)  # builds the layers, so that their weights can be watched
        trained = {name: variable for name, variable in self.variables().items() if variable.trainable}
        with tf.GradientTape() as tape:
            error = self.outputs(x, training=True) - tf.constant(y)
            loss = tf.reduce_sum(tf.square(error)) / len(x)
        found = tape.gradient(loss, [variable.value for variable in trained.values()])
        return {name: tf.convert_to_tensor(gradient).numpy() for name, gradient in zip(trained, found, strict=True)}

    def variables(self) -> dict[str, Any]:
        """Return Keras' variables under our names."""
        return {
            f"{name}.{weight}": variable
            for name, layer in self._made.items()
            for weight, variable in zip(ORDER.get(self._types[name], ()), layer.weights, strict=False)
        }

    def _through(self, layers: Sequence[Layer], x: Any, training: bool) -> Any:  # noqa: FBT001 - passed on
        for layer in layers:
            if isinstance(layer, ResidualLayer):
                x = self._through(layer.layers, x, training) + self._through(layer.shortcut, x, training)
            elif isinstance(layer, ParallelLayer):
                merge = MERGES[layer.merge](dtype=DTYPE)
                x = merge([self._through(branch, x, training) for branch in layer.branches])
            else:
                extra = {"training": training} if layer.type == "batch_norm" else {}
                x = self._layer(layer, x)(x, **extra)
        return x

    def _layer(self, layer: Layer, x: Any) -> Any:
        if layer.name not in self._made:
            made = MAKERS[layer.type](layer)
            made.build(tuple(x.shape))
            names = [f"{layer.name}.{weight}" for weight in ORDER.get(layer.type, ())]
            made.set_weights([self._weights[name] for name in names if name in self._weights])
            self._made[layer.name] = made
        return self._made[layer.name]
