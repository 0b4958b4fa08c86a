"""Convolutions and pools. Our layouts and paddings are TensorFlow's own, so nothing is turned or padded by hand."""

from typing import Final

from app.spec.layers import (
    AvgPool2dLayer,
    Conv1dLayer,
    Conv2dLayer,
    GlobalAvgPool2dLayer,
    MaxPool2dLayer,
)
from workers.backends.tensorflow.framework import tf
from workers.backends.tensorflow.passes import Operation, Pass, Tensor


def _conv(layer: Conv1dLayer | Conv2dLayer, x: Tensor, call: Pass) -> Tensor:
    """Convolve by `tf.nn.convolution`: it turns a dilation into a plain convolution over cut-up space.

    The convolution ops themselves have no gradient of a dilated kernel on the CPU.
    """
    x, kernel = call.factors(x, call.weights[f"{layer.name}.kernel"])
    y = tf.nn.convolution(
        x,
        kernel,
        strides=_per_axis(layer.strides),
        padding=layer.padding.upper(),
        dilations=_per_axis(layer.dilation),
    )
    return call.biased(y, layer.name) if layer.use_bias else y


def _per_axis(value: int | tuple[int, int]) -> list[int]:
    return [value] if isinstance(value, int) else list(value)


def _max_pool(layer: MaxPool2dLayer, x: Tensor, call: Pass) -> Tensor:  # noqa: ARG001 - the protocol
    return tf.nn.max_pool2d(x, layer.pool_size, layer.strides, layer.padding.upper())


def _avg_pool(layer: AvgPool2dLayer, x: Tensor, call: Pass) -> Tensor:  # noqa: ARG001 - the protocol
    return tf.nn.avg_pool2d(x, layer.pool_size, layer.strides, layer.padding.upper())


def _global_avg_pool(layer: GlobalAvgPool2dLayer, x: Tensor, call: Pass) -> Tensor:  # noqa: ARG001 - the protocol
    if call.product is None:
        return tf.reduce_mean(x, [1, 2])
    return tf.cast(tf.reduce_mean(tf.cast(x, tf.float32), [1, 2]), x.dtype)  # a sum of halves loses, and overflows


OPERATIONS: Final[dict[str, Operation]] = {
    "conv1d": _conv,
    "conv2d": _conv,
    "max_pool2d": _max_pool,
    "avg_pool2d": _avg_pool,
    "global_avg_pool2d": _global_avg_pool,
}
