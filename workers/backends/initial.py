"""The weights a model starts from: drawn once, with NumPy, in float64, and loaded into whichever framework runs."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.spec.layers import Layer, LstmLayer, Shape, walk
from app.spec.weights import WeightFacts, weight_facts, weight_shapes

__all__ = ["WeightFacts", "Weights", "draw_weights", "weight_facts", "weight_shapes"]

Weights = dict[str, NDArray[np.floating]]
"""Every weight by its name `<layer>.<weight>`, in the order of the layers, depth first (see `app.spec.weights`)."""

_STREAM: Final = 0x1217
"""Keeps these draws apart from the batch orders, which are drawn from [seed, epoch]."""

_EMBEDDING_LIMIT: Final = 0.05  # as Keras


def draw_weights(layers: Sequence[Layer], input_shape: Shape, seed: int) -> Weights:
    """Draw the initial value of every weight, the moving statistics of batch norm among them.

    Kernels are Glorot uniform (Glorot and Bengio 2010, eq. 16): uniform within sqrt(6 / (fan in + fan out)), the fans
    of a convolution being its channels times its area, and those of the gates of a recurrent layer taken together, as
    Keras does. Recurrent kernels are orthogonal (Saxe et al. 2014): their rows are orthonormal. Embeddings are uniform
    within 0.05, the biases of the forget gates of an lstm are 1 (Jozefowicz et al. 2015), gamma and moving_variance
    are 1, everything else is 0.

    Each weight has a stream of its own, so that adding a layer leaves the weights of those before it as they were.
    """
    forgetting = {f"{layer.name}.bias": layer.units for layer in walk(layers) if isinstance(layer, LstmLayer)}
    weights: Weights = {}
    for place, (name, shape) in enumerate(weight_shapes(layers, input_shape).items()):
        weights[name] = _draw(name.rsplit(".", 1)[1], shape, np.random.default_rng([seed, place, _STREAM]))
        if name in forgetting:
            units = forgetting[name]
            weights[name][units : 2 * units] = 1.0
    return weights


def _draw(kind: str, shape: Shape, random: np.random.Generator) -> NDArray[np.float64]:
    match kind:
        case "kernel":
            area = math.prod(shape[:-2])
            limit = math.sqrt(6.0 / (area * (shape[-2] + shape[-1])))
            return random.uniform(-limit, limit, shape)
        case "recurrent_kernel":
            return _orthogonal(shape, random)
        case "embeddings":
            return random.uniform(-_EMBEDDING_LIMIT, _EMBEDDING_LIMIT, shape)
        case "gamma" | "moving_variance":
            return np.ones(shape)
        case _:
            return np.zeros(shape)


def _orthogonal(shape: Shape, random: np.random.Generator) -> NDArray[np.float64]:
    """Draw a matrix with orthonormal rows (units, gates * units), uniformly: the signs of R's diagonal are fixed."""
    rows, columns = shape
    q, r = np.linalg.qr(random.standard_normal((columns, rows)))
    return np.ascontiguousarray((q * np.sign(np.diag(r))).T)
