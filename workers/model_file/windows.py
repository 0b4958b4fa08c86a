"""Convolution and pooling: every window of a picture as a row of a matrix, then one product or one reduction.

Pictures are (rows, height, width, channels). A one-dimensional convolution is a picture of height 1.
"""

import math
from collections.abc import Iterator
from typing import Final, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from app.spec.layers import Conv1dLayer, Conv2dLayer, Pair

Values = NDArray[np.floating]
Padding = Literal["valid", "same"]

_BLOCK: Final = 1 << 22
"""Values of windows made at once: 16 MB in float32, so that a large batch does not become many times its size."""


def same_padding(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """How much TensorFlow's `same` pads one axis before and after; the odd one goes behind."""
    total = max((math.ceil(size / stride) - 1) * stride + (kernel - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


def convolve2d(x: Values, layer: Conv2dLayer, kernel: Values, bias: Values | None) -> Values:
    """Cross-correlate with a kernel (height, width, in, out); a few rows at a time."""
    columns = kernel.reshape(-1, kernel.shape[-1])
    pieces = []
    for windows in _windows(x, layer.kernel_size, layer.strides, layer.padding, layer.dilation, fill=0.0):
        # (rows, h, w, channels, kh, kw), as NumPy gives it, to the kernel's own order (kh, kw, channels).
        patches = np.ascontiguousarray(windows.transpose(0, 1, 2, 4, 5, 3))
        pieces.append(patches.reshape(*patches.shape[:3], len(columns)) @ columns)
    y = np.concatenate(pieces)
    return y if bias is None else y + bias


def convolve1d(x: Values, layer: Conv1dLayer, kernel: Values, bias: Values | None) -> Values:
    """Convolve (rows, steps, in) with a kernel (steps, in, out)."""
    flat = Conv2dLayer(
        layer.name, layer.filters, (1, layer.kernel_size), (1, layer.strides), layer.padding, (1, layer.dilation)
    )
    return convolve2d(x[:, None], flat, kernel[None], bias)[:, 0]


def max_pool(x: Values, size: Pair, strides: Pair, padding: Padding) -> Values:
    """Take the largest value of each window; padding is never it."""
    pieces = [w.max(axis=(4, 5)) for w in _windows(x, size, strides, padding, (1, 1), fill=-np.inf)]
    return np.concatenate(pieces)


def avg_pool(x: Values, size: Pair, strides: Pair, padding: Padding) -> Values:
    """Take the mean of each window over what is not padding."""
    sums = [w.sum(axis=(4, 5)) for w in _windows(x, size, strides, padding, (1, 1), fill=0.0)]
    ones = np.ones((1, *x.shape[1:3], 1), x.dtype)
    (counts,) = (w.sum(axis=(4, 5)) for w in _windows(ones, size, strides, padding, (1, 1), fill=0.0))
    return np.asarray(np.concatenate(sums) / counts)


def _windows(x: Values, kernel: Pair, strides: Pair, padding: Padding, dilation: Pair, fill: float) -> Iterator[Values]:
    """Views of shape (some rows, height, width, channels, kernel height, kernel width), of all rows in order."""
    if padding == "same":
        borders = [same_padding(x.shape[axis + 1], kernel[axis], strides[axis], dilation[axis]) for axis in (0, 1)]
        x = np.pad(x, ((0, 0), *borders, (0, 0)), constant_values=fill)
    reach = tuple((kernel[axis] - 1) * dilation[axis] + 1 for axis in (0, 1))
    views = sliding_window_view(x, reach, axis=(1, 2))
    views = views[:, :: strides[0], :: strides[1], :, :: dilation[0], :: dilation[1]]
    rows = max(1, _BLOCK // max(1, math.prod(views.shape[1:])))
    for start in range(0, max(len(x), 1), rows):
        yield views[start : start + rows]
