"""What does not fit together in a model that can be read: a forward pass would fail, or be wrong without failing."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.spec.layers import Layer, sequences_in, walk
from app.spec.shapes import ShapeProblem, trace
from app.spec.weights import weight_shapes
from workers.data.encoding import Encoder
from workers.data.fitted import BooleanInput, FittedInput, NumberInput, OneHotInput
from workers.model_file.description import Columns, Description
from workers.model_file.python_description import PythonDescription

DEEPEST: Final = 8
MOST_LAYERS: Final = 4096
"""More than a spec allows, with room for those that we add."""
LARGEST: Final = 1 << 27
"""Values of one row between two layers; more is no model of ours but a way to fill the memory."""

_MOST: Final = {"epsilon": math.inf}

Found = Mapping[str, NDArray[np.generic]]


def contradiction(description: Description, weights: Found, encoder: Encoder) -> str | None:
    """Give the first reason why the parts do not belong together."""
    return next(_reasons(description, weights, encoder), None)


def python_contradiction(description: PythonDescription, weights: Found, encoder: Encoder) -> str | None:
    """Give the first reason why the parts of a user's own model do not belong together.

    Only its code knows its layers, so of its weights no more is asked than that they are numbers.
    """
    return next(_python_reasons(description, weights, encoder), None)


def _python_reasons(description: PythonDescription, weights: Found, encoder: Encoder) -> Iterator[str]:
    yield from _of_inputs(description, encoder)
    if description.python.framework != description.framework:
        yield f"its framework is {description.framework}, and its code is for {description.python.framework}."
    for name, value in weights.items():
        if np.issubdtype(value.dtype, np.floating):
            if not np.isfinite(value).all():
                yield f"weight '{name}' holds a value that is not a finite number."
        elif not (np.issubdtype(value.dtype, np.integer) or value.dtype == np.bool_):
            yield f"weight '{name}' is of type {value.dtype}."
    yield from _of_answers(description)


def _reasons(description: Description, weights: Found, encoder: Encoder) -> Iterator[str]:
    yield from _of_inputs(description, encoder)
    yield from _of_layers(description.layers)
    yield from _of_shapes(description)
    yield from _of_weights(description, weights)
    yield from _of_answers(description)


def _of_inputs(description: Description | PythonDescription, encoder: Encoder) -> Iterator[str]:
    names = [column.name for column in encoder.inputs]
    if names != description.features:
        yield f"it must scale {len(description.features)} features, {', '.join(description.features)}."
    for column in encoder.inputs:
        yield from _of_input(column)
    shape = description.input_shape
    if not all(size >= 1 for size in shape):
        yield f"its input shape {list(shape)} holds nothing."
    if encoder.input_shape != shape or encoder.width != math.prod(shape):
        yield f"its encoder makes {list(encoder.input_shape)}, and its layers begin with {list(shape)}."


def _of_input(column: FittedInput) -> Iterator[str]:
    if not all(type(size) is int and size >= 1 for size in column.shape or ()):
        yield f"feature '{column.name}' has the shape {column.shape}."
    if isinstance(column, NumberInput):
        scaling, width = column.scaling, math.prod(column.shape or (1,))
        for part in (scaling.mean, scaling.scale, *(() if column.fill is None else (column.fill,))):
            if part.shape != (width,) or not np.isfinite(part).all():
                yield f"feature '{column.name}' is not scaled by {width} numbers."
        if not (scaling.scale > 0).all():
            yield f"feature '{column.name}' has a scale that is not above 0."
    if isinstance(column, BooleanInput) and column.fill not in {None, 0.0, 1.0}:
        yield f"feature '{column.name}' is filled with something else than true or false."
    if isinstance(column, OneHotInput) and len(column.seen) != len(column.categories):
        yield f"feature '{column.name}' does not say of each category whether it was seen."


def _of_layers(layers: Sequence[Layer]) -> Iterator[str]:
    if _depth(layers) > DEEPEST:
        yield f"its layers are nested more than {DEEPEST} deep."
    every = list(walk(layers))
    if len(every) > MOST_LAYERS:
        yield f"it has {len(every)} layers, of at most {MOST_LAYERS}."
    names = [layer.name for layer in every]
    if len(set(names)) < len(names):
        yield f"two layers are called '{Counter(names).most_common(1)[0][0]}'."
    for layer in every:
        yield from _of_numbers(layer)
        if layer.type == "parallel" and not layer.branches:
            yield f"layer '{layer.name}' has no branches."


def _of_numbers(layer: Layer) -> Iterator[str]:
    """Every whole number of a layer counts something; the others are shares of 1, or an epsilon."""
    for field in fields(layer):
        value = getattr(layer, field.name)
        numbers = value if isinstance(value, tuple) else (value,)
        for number in numbers:
            if isinstance(number, bool):
                continue
            if isinstance(number, int) and number < 1:
                yield f"layer '{layer.name}' has {field.name} {number}, which must be at least 1."
            if isinstance(number, float) and not 0 <= number <= _MOST.get(field.name, 1.0):
                yield f"layer '{layer.name}' has {field.name} {number:g}, which is out of range."


def _depth(layers: Sequence[Layer]) -> int:
    return max((1 + _depth(inner) for layer in layers for inner in sequences_in(layer)), default=0)


def _of_shapes(description: Description) -> Iterator[str]:
    try:
        shapes = list(trace(description.layers, description.input_shape))
    except ShapeProblem as problem:
        yield f"its layers do not fit together: {problem.sentence}"
        return
    for layer, _, shape in shapes:
        if math.prod(shape) > LARGEST:
            yield f"layer '{layer.name}' makes {math.prod(shape):,} values of one row, of at most {LARGEST:,}."
    last = shapes[-1][2] if shapes else description.input_shape
    end = description.layers[-1] if description.layers else None
    if end is None or end.type != "dense" or last != (description.outputs,):
        yield f"its last layer must have {description.outputs} outputs."


def _of_weights(description: Description, weights: Found) -> Iterator[str]:
    wanted = weight_shapes(description.layers, description.input_shape)
    found = {name: value.shape for name, value in weights.items()}
    for name in (*wanted, *found):
        if wanted.get(name) != found.get(name):
            yield f"the layers need a weight '{name}' of shape {wanted.get(name)}, and there is {found.get(name)}."
    for name, value in weights.items():
        if value.dtype not in (np.float32, np.float64):
            yield f"weight '{name}' is of type {value.dtype}, and not of float32."
        elif not np.isfinite(value).all():
            yield f"weight '{name}' holds a value that is not a finite number."


def _of_answers(description: Description | PythonDescription) -> Iterator[str]:
    if (description.classes is None) == (description.task == "classification"):
        yield f"its task is {description.task}, and it has {'no' if description.classes is None else 'some'} classes."
    if description.classes is not None and len(set(map(repr, description.classes))) != len(description.classes):
        yield "a class is in its list twice."
    scaling = description.target_scaling
    if scaling is not None and not _scales(scaling, 1):
        yield "its target must have one mean, and one scale above 0."


def _scales(columns: Columns, count: int) -> bool:
    return len(columns.mean) == len(columns.scale) == count and all(scale > 0 for scale in columns.scale)
