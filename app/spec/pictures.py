"""The shape of the pictures that a cnn or resnet looks at, filled in from the data."""

import math

from app.spec.geometry import picture_of, written
from app.spec.inputs import InputColumn, input_shape_of, inputs_of
from app.spec.job import EffectiveSpec
from app.spec.model import Cnn, Resnet
from app.spec.problems import SpecProblem
from app.spec.table import TableSchema

_WHERE = "/model/input_shape"


def with_picture(spec: EffectiveSpec, table: TableSchema) -> EffectiveSpec | SpecProblem:
    """Return the spec with `model.input_shape` filled in, or why that cannot be; other models are left as they are."""
    if not isinstance(spec.model, Cnn | Resnet):
        return spec
    inputs = inputs_of(spec.data, table)
    count = math.prod(input_shape_of(inputs))
    shape = spec.model.input_shape or _known_shape(spec, inputs, table)
    example = written(_known_shape(spec, inputs, table) or picture_of(count))
    if shape is None:
        sentence = (
            f"Model {spec.model.type} needs pictures, and the data does not say their shape: set model.input_shape to "
            f"[height, width, channels] with {count:,} values in all, for example {example}."
        )
        return SpecProblem(_WHERE, sentence, example)
    if math.prod(shape) != count:
        sentence = (
            f"model.input_shape {written(shape)} has {math.prod(shape):,} values, but the features give {count:,} "
            f"for each row; it could be {example}."
        )
        return SpecProblem(_WHERE, sentence, example)
    return spec.model_copy(update={"model": spec.model.model_copy(update={"input_shape": shape})})


def _known_shape(spec: EffectiveSpec, inputs: list[InputColumn], table: TableSchema) -> list[int] | None:
    """Return the picture's shape as the data knows it: that of the array, or of all the table's pixels in order."""
    if len(inputs) == 1 and inputs[0].shape is not None:
        shape = list(inputs[0].shape)
        return {2: [*shape, 1], 3: shape}.get(len(shape))
    if table.image_shape is None:
        return None
    pixels = [column.name for column in table.columns if column.name not in (spec.data.target, spec.data.split.column)]
    whole = spec.data.features == pixels and math.prod(table.image_shape) == len(pixels)
    return list(table.image_shape) if whole else None
