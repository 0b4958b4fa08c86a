"""The layers of a model with the shapes that they give out, nested ones included."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from app.spec.geometry import ShapeProblem, output_shape, trace
from app.spec.layers import Layer, Shape, sequences_in
from app.spec.weights import weights_of

__all__ = ["LayerShape", "Shape", "ShapeProblem", "infer", "output_shape", "trace"]


class LayerShape(BaseModel):
    """One layer: the shape of what it gives out, without the batch, and its trained numbers.

    A residual or parallel layer comes before the layers inside of it, which count their own numbers.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    type: str
    output_shape: list[int]
    parameters: int
    inside: str | None = Field(default=None, description="The residual or parallel layer that this one is part of.")


def infer(layers: Sequence[Layer], input_shape: Shape) -> list[LayerShape]:
    """Follow a row of `input_shape` through the layers, depth first.

    Raises ShapeProblem at the first layer that does not fit; it names the layer and both shapes.
    """
    inside = dict(_containers(layers))
    return [
        LayerShape(
            name=layer.name,
            type=layer.type,
            output_shape=list(given),
            parameters=sum(facts.size for facts in weights_of(layer, taken).values() if facts.trained),
            inside=inside.get(layer.name),
        )
        for layer, taken, given in trace(layers, input_shape)
    ]


def _containers(layers: Sequence[Layer]) -> list[tuple[str, str]]:
    """Pair the name of each nested layer with that of the layer it stands in."""
    pairs = []
    for layer in layers:
        for inner in sequences_in(layer):
            pairs += [(each.name, layer.name) for each in inner]
            pairs += _containers(inner)
    return pairs
