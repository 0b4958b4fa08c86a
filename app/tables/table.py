"""A table in memory: typed columns, ready to be trained on."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from app.spec.table import Column, TableSchema
from app.tables.builtin import BUILTIN
from app.tables.cells import EXACT, Cells, booleans, times
from app.tables.formats import detect, open_table
from app.tables.profile import profile

Values = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Table:
    """Columns by name, all of `schema.rows` values.

    `number`: float64, gaps are NaN, infinities stay. `integer`: int64, or float64 as above when it has gaps or
    infinities; with numbers of 2**53 and more, which a float cannot tell apart, then objects int, None, inf.
    `boolean`: objects True, False, None. `text`: objects str, None. `time`: datetime64[us] in UTC, gaps are NaT.
    A column of arrays: (rows, *shape), float64 or int64. `row_numbers`: the row in the file: the first row of values is
    2 where row 1 is a header, and 1 where there is none (Parquet, NPZ); a built-in set counts from 2.
    """

    columns: dict[str, Values]
    schema: TableSchema
    row_numbers: NDArray[np.int64]


def read_table(path: Path | None, builtin: str | None, table_format: str | None = None) -> Table:
    """Read an uploaded file (as that format, else as what its content is) or a built-in set, whichever is given.

    Raises InvalidTable for a file that is not a table, KeyError for an unknown set, ValueError unless exactly one is
    given. The file is read twice, first to type its columns: validation and training see the same types.
    """
    if (path is None) == (builtin is None):
        raise ValueError("read_table needs a path or the name of a built-in set, and not both.")
    if path is None:
        return _builtin(str(builtin))
    chosen = table_format or detect(path)
    schema = profile(path, chosen)
    file = open_table(path, chosen)
    parts: list[list[Values]] = [[] for _ in schema.columns]
    rows = []
    for block in file.blocks():
        rows.append(block.rows)
        for part, cells, column in zip(parts, block.cells, schema.columns, strict=True):
            part.append(typed(file.read(cells), column) if isinstance(cells, pl.Series) else _wide(cells))
    columns = {column.name: _joined(part) for column, part in zip(schema.columns, parts, strict=True)}
    return Table(columns, schema, np.concatenate(rows))


def _builtin(name: str) -> Table:
    dataset = BUILTIN[name].load()
    return Table(dict(dataset.columns), dataset.schema, np.arange(2, dataset.schema.rows + 2, dtype=np.int64))


def _joined(parts: list[Values]) -> Values:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _wide(values: Values) -> Values:
    return values.astype(np.int64 if values.dtype.kind in "iu" else np.float64, copy=False)


def typed(read: Cells, column: Column) -> Values:
    """Return a block of a column as `Table` keeps a column of that kind."""
    if column.kind == "text":
        return _texts(read.text, column)
    if column.kind == "boolean":
        return _objects(booleans(read.text))
    if column.kind == "time":
        return times(read.text).to_numpy()
    if column.kind == "integer" and not column.missing and not column.infinite:
        return read.whole.fill_null(read.number.cast(pl.Int64, strict=False)).to_numpy()
    if column.kind == "integer" and _beyond_floats(column):
        return _objects(
            number if whole is None else whole for whole, number in zip(read.whole, read.number, strict=True)
        )
    return read.number.fill_null(np.nan).to_numpy()


def _beyond_floats(column: Column) -> bool:
    """Whether a float would take different whole numbers, say the long ids of classes, for one."""
    return max(abs(column.minimum or 0.0), abs(column.maximum or 0.0)) >= EXACT


def _texts(text: pl.Series, column: Column) -> Values:
    """Return text as objects; of a column with few labels each is one object, however many rows have it."""
    if column.labels is None:
        return _objects(text)
    labels = np.array([*column.labels, None], dtype=object)
    places = text.cast(pl.Enum(column.labels)).to_physical().cast(pl.Int64).fill_null(len(column.labels))
    return np.asarray(labels[places.to_numpy()])


def _objects(values: Iterable[Any]) -> Values:
    found = list(values)
    array = np.empty(len(found), dtype=object)
    array[:] = found
    return array
