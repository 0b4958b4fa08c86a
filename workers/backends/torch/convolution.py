"""Convolutions and pools, channels last: torch sees every picture through a view with the channels in front.

Such a view is what torch calls the channels-last memory format, its fastest one on CPUs and on tensor cores, so nothing
is moved between two layers. A sequence is a picture of height 1.
"""

from collections.abc import Sequence
from typing import Final, cast

import torch
from torch import Tensor
from torch.nn import functional

from app.spec.layers import (
    AvgPool2dLayer,
    Conv1dLayer,
    Conv2dLayer,
    GlobalAvgPool2dLayer,
    MaxPool2dLayer,
    Padding,
    Pair,
)
from workers.backends.torch.passes import Operation, Pass

Edges = tuple[Pair, Pair]
"""How much is put before and after, for height and width."""


def edges(padding: Padding, sizes: Sequence[int], kernel: Pair, strides: Pair, dilation: Pair = (1, 1)) -> Edges:
    """Return the padding of TensorFlow's `same`: `max((ceil(n / s) - 1) s + (k - 1) d + 1 - n, 0)`, less of it before.

    torch's own `padding` is the same on both sides, which for strides above 1 has the right shape and other values.
    """
    if padding == "valid":
        return (0, 0), (0, 0)
    totals = [
        max((-(-size // stride) - 1) * stride + (length - 1) * spread + 1 - size, 0)
        for size, length, stride, spread in zip(sizes, kernel, strides, dilation, strict=True)
    ]
    height, width = ((total // 2, total - total // 2) for total in totals)
    return height, width


def _padded(x: Tensor, around: Edges, value: float) -> tuple[Tensor, Pair]:
    """Return the picture, and what is left for the operation itself to put on both sides."""
    (top, bottom), (left, right) = around
    if top == bottom and left == right:
        return x, (top, left)
    return functional.pad(x, (left, right, top, bottom), value=value), (0, 0)


def _convolved(x: Tensor, kernel: Tensor, bias: Tensor | None, layer: Conv2dLayer, call: Pass) -> Tensor:
    """Convolve (rows, height, width, in) with a kernel (height, width, in, out)."""
    around = edges(layer.padding, x.shape[1:3], layer.kernel_size, layer.strides, layer.dilation)
    x, kernel = call.factor(x), call.factor(kernel)
    rounded = x.dtype == torch.float16 and x.device.type == "cpu"
    if rounded:
        # A CPU has no kernel for it, and takes 35 times as long; the numbers are rounded, their products float32.
        x, kernel = x.float(), kernel.float()
    picture, both = _padded(x.permute(0, 3, 1, 2), around, 0.0)
    y = functional.conv2d(
        picture,
        kernel.permute(3, 2, 0, 1),
        None if bias is None else bias.to(x.dtype),
        layer.strides,
        both,
        layer.dilation,
    ).permute(0, 2, 3, 1)
    return y.half() if rounded else y


def _conv2d(layer: Conv2dLayer, x: Tensor, call: Pass) -> Tensor:
    bias = call.weights[f"{layer.name}.bias"] if layer.use_bias else None
    return _convolved(x, call.weights[f"{layer.name}.kernel"], bias, layer, call)


def _conv1d(layer: Conv1dLayer, x: Tensor, call: Pass) -> Tensor:
    picture = Conv2dLayer(
        layer.name,
        layer.filters,
        (1, layer.kernel_size),
        (1, layer.strides),
        layer.padding,
        (1, layer.dilation),
        layer.use_bias,
    )
    bias = call.weights[f"{layer.name}.bias"] if layer.use_bias else None
    kernel = call.weights[f"{layer.name}.kernel"].unsqueeze(0)
    return _convolved(x.unsqueeze(1), kernel, bias, picture, call).squeeze(1)


def _max_pool2d(layer: MaxPool2dLayer, x: Tensor, call: Pass) -> Tensor:  # noqa: ARG001 - the protocol
    around = edges(layer.padding, x.shape[1:3], layer.pool_size, layer.strides)
    picture, both = _padded(x.permute(0, 3, 1, 2), around, float("-inf"))
    return functional.max_pool2d(picture, layer.pool_size, layer.strides, both).permute(0, 2, 3, 1)


def _avg_pool2d(layer: AvgPool2dLayer, x: Tensor, call: Pass) -> Tensor:  # noqa: ARG001 - the protocol
    around = edges(layer.padding, x.shape[1:3], layer.pool_size, layer.strides)
    picture, both = _padded(x.permute(0, 3, 1, 2), around, 0.0)
    if picture.shape[2:] == x.shape[1:3]:
        pooled = functional.avg_pool2d(picture, layer.pool_size, layer.strides, both, count_include_pad=False)
        return pooled.permute(0, 2, 3, 1)
    # torch counts what was padded beforehand; the pool of a picture of ones is the share that is no padding.
    ones, _ = _padded(x.new_ones(1, 1, *x.shape[1:3]), around, 0.0)
    pooled, share = (functional.avg_pool2d(each, layer.pool_size, layer.strides) for each in (picture, ones))
    return (pooled / share).permute(0, 2, 3, 1)


def _global_avg_pool2d(layer: GlobalAvgPool2dLayer, x: Tensor, call: Pass) -> Tensor:  # noqa: ARG001 - the protocol
    return x.mean(dim=(1, 2))


OPERATIONS: Final = cast(
    "dict[str, Operation]",
    {
        "conv1d": _conv1d,
        "conv2d": _conv2d,
        "max_pool2d": _max_pool2d,
        "avg_pool2d": _avg_pool2d,
        "global_avg_pool2d": _global_avg_pool2d,
    },
)
