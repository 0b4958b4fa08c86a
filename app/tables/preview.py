"""The first rows of a table, as people see them."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import polars as pl

from app.tables.blocks import Array, TableFile
from app.tables.cells import typed_cells
from app.tables.formats import open_table
from app.tables.problems import InvalidTable
from app.tables.table import read_table

_BLOCK: Final = 64 * 1024
_MOST_NUMBERS: Final = 64
_MOST_CELLS: Final = 200_000
_LONGEST: Final = 200


@dataclass(frozen=True, slots=True)
class Preview:
    """Names of the columns, and rows of cells ready for JSON.

    Cells of a text file are the text that stands there; others have their own type, times in ISO 8601, arrays as nested
    lists or, of more than 64 numbers, as their shape (`array 28 x 28`). What is empty or not a number is None. Text of
    more than 200 characters is cut, and there are fewer rows of a table with thousands of columns.
    """

    names: list[str]
    rows: list[list[Any]]


def preview(path: Path | None, builtin: str | None, table_format: str | None = None, *, rows: int) -> Preview:
    """Return the first rows; of a text file only its beginning is read and checked. Raises as `read_table`."""
    if path is None:
        table = read_table(None, builtin)
        return Preview(list(table.columns), _turned([values[:rows].tolist() for values in table.columns.values()]))
    try:
        return _first_rows(open_table(path, table_format, block_bytes=_BLOCK), rows)
    except InvalidTable:  # a header of thousands of names, or a row, may be longer than that
        return _first_rows(open_table(path, table_format), rows)


def _first_rows(file: TableFile, rows: int) -> Preview:
    rows = min(rows, max(1, _MOST_CELLS // len(file.names)))
    columns: list[list[Any]] = [[] for _ in file.names]
    for block in islice(file.blocks(), rows):
        for column, cells in zip(columns, block.cells, strict=True):
            column.extend(_shown(cells[: rows - len(column)]))
        if len(columns[0]) >= rows:
            break
    return Preview(file.names, _turned(columns))


def _turned(columns: list[list[Any]]) -> list[list[Any]]:
    return [list(row) for row in zip(*columns, strict=True)]


def _shown(cells: pl.Series | Array) -> list[Any]:
    if isinstance(cells, pl.Series):
        if cells.dtype.is_temporal():
            return typed_cells(cells).text.to_list()
        if cells.dtype.is_float():
            cells = cells.cast(pl.Float64)
            return cells.set(~cells.is_finite(), None).to_list()
        if cells.dtype == pl.String:
            return [value if value is None or len(value) <= _LONGEST else f"{value[:_LONGEST]}…" for value in cells]
        return cells.cast(pl.Float64).to_list() if cells.dtype.is_decimal() else cells.to_list()
    if cells[0].size > _MOST_NUMBERS:
        return [f"array {' x '.join(map(str, cells.shape[1:]))}"] * len(cells)
    return [_finite(row) for row in cells.tolist()]


def _finite(value: Any) -> Any:  # noqa: ANN401 - nested lists of numbers
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return value if value - value == 0 else None
