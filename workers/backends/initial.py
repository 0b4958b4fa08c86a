"""The weights a model starts from: drawn once, with NumPy, in float64, and loaded into whichever framework runs."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.spec.layers import DenseLayer, Layer

Weights = dict[str, NDArray[np.floating]]
"""`<layer>.kernel` of shape (inputs, units) and `<layer>.bias` of shape (units), in the order of the layers."""

_STREAM: Final = 0x1217
"""Keeps these draws apart from the batch orders, which are drawn from [seed, epoch]."""


def weight_shapes(layers: Sequence[Layer], features: int) -> dict[str, tuple[int, ...]]:
    """Return the shape of every weight, in the order of the layers."""
    shapes: dict[str, tuple[int, ...]] = {}
    inputs = features
    for layer in layers:
        if isinstance(layer, DenseLayer):
            shapes[f"{layer.name}.kernel"] = (inputs, layer.units)
            shapes[f"{layer.name}.bias"] = (layer.units,)
            inputs = layer.units
    return shapes


def draw_weights(layers: Sequence[Layer], features: int, seed: int) -> Weights:
    """Draw Glorot-uniform kernels (Glorot and Bengio 2010, eq. 16) and zero biases.

    Each kernel has a stream of its own, so that adding a layer leaves the weights of those before it as they were.
    """
    weights: Weights = {}
    for place, (name, shape) in enumerate(weight_shapes(layers, features).items()):
        if name.endswith(".bias"):
            weights[name] = np.zeros(shape)
        else:
            limit = math.sqrt(6.0 / sum(shape))
            weights[name] = np.random.default_rng([seed, place, _STREAM]).uniform(-limit, limit, shape)
    return weights
