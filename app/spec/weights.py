"""The weights of every layer: names, shapes, and which are trained.

Names are `<layer>.<weight>`, shapes those of Keras; they are the keys of stored models and checkpoints in both
frameworks, so they never change.
"""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from app.spec.geometry import trace
from app.spec.layers import (
    BatchNormLayer,
    Conv1dLayer,
    Conv2dLayer,
    DenseLayer,
    EmbeddingLayer,
    GruLayer,
    Layer,
    LayerNormLayer,
    LstmLayer,
    Shape,
)

_LSTM_GATES: Final = 4  # i, f, g, o
_GRU_GATES: Final = 3  # z, r, h


class WeightFacts(NamedTuple):
    """One weight: its shape, and whether the optimizer moves it (moving statistics of batch_norm are not trained)."""

    shape: Shape
    trained: bool = True

    @property
    def size(self) -> int:
        """How many numbers it has."""
        return math.prod(self.shape)


def weight_facts(layers: Sequence[Layer], input_shape: Shape) -> dict[str, WeightFacts]:
    """Return every weight by name, in the order of the layers, depth first.

    Raises ShapeProblem when a layer does not fit what it gets.
    """
    return {
        f"{layer.name}.{name}": facts
        for layer, shape, _ in trace(layers, input_shape)
        for name, facts in weights_of(layer, shape).items()
    }


def weight_shapes(layers: Sequence[Layer], input_shape: Shape) -> dict[str, Shape]:
    """Return the shape of every weight by name, in the order of the layers, depth first."""
    return {name: facts.shape for name, facts in weight_facts(layers, input_shape).items()}


def weights_of(layer: Layer, shape: Shape) -> dict[str, WeightFacts]:  # noqa: PLR0911 - one case per kind of layer
    """Return the weights of one layer that gets rows of `shape`; those inside of a container are not its own."""
    match layer:
        case DenseLayer():
            return _kernel((shape[-1], layer.units), use_bias=layer.use_bias)
        case Conv1dLayer():
            return _kernel((layer.kernel_size, shape[-1], layer.filters), use_bias=layer.use_bias)
        case Conv2dLayer():
            return _kernel((*layer.kernel_size, shape[-1], layer.filters), use_bias=layer.use_bias)
        case BatchNormLayer():
            features = (shape[-1],)
            still = {name: WeightFacts(features, trained=False) for name in ("moving_mean", "moving_variance")}
            return {"gamma": WeightFacts(features), "beta": WeightFacts(features), **still}
        case LayerNormLayer():
            return {"gamma": WeightFacts((shape[-1],)), "beta": WeightFacts((shape[-1],))}
        case EmbeddingLayer():
            return {"embeddings": WeightFacts((layer.input_dim, layer.output_dim))}
        case LstmLayer():
            return _recurrent(shape[-1], layer.units, _LSTM_GATES, (_LSTM_GATES * layer.units,))
        case GruLayer():
            return _recurrent(shape[-1], layer.units, _GRU_GATES, (2, _GRU_GATES * layer.units))
        case _:
            return {}


def _kernel(shape: Shape, *, use_bias: bool) -> dict[str, WeightFacts]:
    kernel = {"kernel": WeightFacts(shape)}
    return {**kernel, "bias": WeightFacts((shape[-1],))} if use_bias else kernel


def _recurrent(inputs: int, units: int, gates: int, bias: Shape) -> dict[str, WeightFacts]:
    return {
        "kernel": WeightFacts((inputs, gates * units)),
        "recurrent_kernel": WeightFacts((units, gates * units)),
        "bias": WeightFacts(bias),
    }
