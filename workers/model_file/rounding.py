"""How far an answer may lie from the framework's by rounding alone, estimated by answering with another rounding."""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.spec.layers import Conv1dLayer, Conv2dLayer, DenseLayer, EmbeddingLayer, GruLayer, Layer, LstmLayer
from app.spec.training import Precision
from workers.backends.initial import Weights
from workers.model_file.forward import forward

OTHER_ORDER: Final = 10
"""How many times what rounding does to NumPy's own answer the framework's may be off: it rounds at other places.

Large inputs whose products nearly cancel leave few digits of a small output; that is no fault of the file. In half
precision it takes no more than a column of years that is not standardized.
"""

_FACTORS: Final = ("kernel", "bias", "embeddings")
"""Ends of the names of what goes into products; statistics and scales of a normalisation do not."""

_PRODUCTS: Final = (DenseLayer, Conv1dLayer, Conv2dLayer, LstmLayer, GruLayer)


def room_for_rounding(
    layers: Sequence[Layer],
    weights: Weights,
    x: NDArray[np.floating],
    precision: Precision,
    found: NDArray[np.floating],
) -> float:
    """Say how far, in the outputs' own unit, an honest answer may be from `found`, NumPy's float32 answer for `x`."""
    apart = np.abs(found - _rounded_otherwise(layers, weights, x, precision))
    return OTHER_ORDER * float(apart.max(initial=0.0, where=np.isfinite(apart)))


def _rounded_otherwise(
    layers: Sequence[Layer], weights: Weights, x: NDArray[np.floating], precision: Precision
) -> NDArray[np.floating]:
    """Answer in float64; or, for half precision, with what goes into products and comes out of layers rounded to it."""
    if precision == "float32":
        wide = {name: value.astype(np.float64) for name, value in weights.items()}
        return forward(layers, wide, x.astype(np.float64))
    rounded = {name: _half(value, precision) if name.endswith(_FACTORS) else value for name, value in weights.items()}
    *inner, output = layers
    half = False
    for layer in inner:
        product = isinstance(layer, _PRODUCTS)
        half = half or product or isinstance(layer, EmbeddingLayer)
        x = forward([layer], rounded, _half(x, precision) if product else x)
        x = _half(x, precision) if half else x
    return forward([output], weights, x)


def _half(values: NDArray[np.floating], precision: Precision) -> NDArray[np.floating]:
    """Round to a half type, kept as float32. NumPy has no bfloat16: it is the upper half of a float32."""
    if precision == "float16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    words = np.array(values, np.float32, order="C").view(np.uint32)
    return ((words + np.uint32(0x8000)) & np.uint32(0xFFFF0000)).view(np.float32)
