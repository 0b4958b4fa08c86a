"""From a model to the layers that a backend builds."""

from app.spec.job import JobSpec
from app.spec.layers import (
    DenseLayer,
    EmbeddingLayer,
    FlattenLayer,
    GlobalAvgPool2dLayer,
    GruLayer,
    Layer,
    LstmLayer,
    ParallelLayer,
    ReshapeLayer,
    ResidualLayer,
    Shape,
)
from app.spec.naming import Namer, Parts
from app.spec.presets import written_layers
from app.spec.python_model import PythonModel


def layers_of(spec: JobSpec, output_units: int, input_shape: Shape | None = None) -> list[Layer]:
    """Expand the model into single operations, with the output layer at the end.

    A layer's activation becomes a layer of its own (none for `linear`). Names are the type and its number from 1, one
    counter per type over the whole model, depth first as written: `dense_1, activation_1, dropout_1, dense_2, …,
    output`; they are the keys of stored weights, so they never change. `output_units`: the number of classes, or 1 for
    regression. `input_shape`: of a row, None = flat; only its rank matters here: presets for flat rows begin with a
    flatten when rows are not flat, and `flatten_output` stands before the output layer when that would not get a flat
    row. Whether the shapes fit is for `app.spec.shapes.infer` to say. A model of the client's own code has no layers
    here: they are known when it runs.
    """
    return expand(spec, output_units, input_shape)[0]


def expand(spec: JobSpec, output_units: int, input_shape: Shape | None = None) -> tuple[list[Layer], dict[str, Parts]]:
    """Expand as `layers_of`, and also tell where in the spec each named layer comes from: parts of a pointer."""
    if isinstance(spec.model, PythonModel):
        return [], {}
    namer = Namer()
    flat = input_shape is None or len(input_shape) == 1
    layers = namer.named(written_layers(spec.model, flat=flat), ("model", "layers"))
    preset = spec.model.type != "sequential"
    places: dict[str, Parts] = dict.fromkeys(namer.places, ("model",)) if preset else namer.places
    if _rank(layers, 1 if input_shape is None else len(input_shape)) > 1:
        layers.append(FlattenLayer("flatten_output"))
    layers.append(DenseLayer("output", output_units))
    for name in ("flatten_output", "output"):
        places[name] = ("model",)
    return layers, places


def _rank(layers: list[Layer] | tuple[Layer, ...], rank: int) -> int:
    for layer in layers:
        match layer:
            case FlattenLayer() | GlobalAvgPool2dLayer():
                rank = 1
            case ReshapeLayer():
                rank = len(layer.shape)
            case EmbeddingLayer():
                rank += 1
            case LstmLayer() | GruLayer():
                rank = 2 if layer.return_sequences else 1
            case ResidualLayer():
                rank = _rank(layer.layers, rank)
            case ParallelLayer():
                rank = _rank(layer.branches[0], rank)
    return rank
