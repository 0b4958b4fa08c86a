"""How each feature column enters the model: one number, true or false, one number per category, or an array."""

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app.spec.data import EffectiveData
from app.spec.layers import Shape
from app.spec.table import Column, TableSchema

Encoding: TypeAlias = Literal["number", "boolean", "one_hot", "tensor"]


@dataclass(frozen=True, slots=True)
class InputColumn:
    """A feature: `width` numbers of each row.

    `categories`: of a text column, its labels over all rows, sorted; `shape`: of a column of arrays.
    """

    name: str
    encoding: Encoding
    width: int
    categories: tuple[str, ...] | None = None
    shape: Shape | None = None


def inputs_of(data: EffectiveData, table: TableSchema) -> list[InputColumn]:
    """Return the features in the order of the spec; columns that the table does not have are left out."""
    columns = {column.name: column for column in table.columns}
    return [_input(columns[name]) for name in data.features if name in columns]


def input_shape_of(inputs: list[InputColumn]) -> Shape:
    """Return the shape of a row: that of a single column of arrays, else (the sum of widths)."""
    if len(inputs) == 1 and inputs[0].shape is not None:
        return inputs[0].shape
    return (sum(column.width for column in inputs),)


def _input(column: Column) -> InputColumn:
    if column.shape is not None:
        return InputColumn(column.name, "tensor", math.prod(column.shape), shape=tuple(column.shape))
    if column.kind == "boolean":
        return InputColumn(column.name, "boolean", 1)
    if column.kind == "text":
        categories = tuple(column.labels or ())
        return InputColumn(column.name, "one_hot", len(categories), categories)
    return InputColumn(column.name, "number", 1)
