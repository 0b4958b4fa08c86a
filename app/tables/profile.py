"""What is in a table: each column's kind, gaps, range and values, in memory that does not grow with the file."""

from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from app.spec.table import LABEL_LIMIT, CellAt, Column, ColumnKind, TableSchema
from app.tables.cells import Cells, booleans, read_cells
from app.tables.pieces import BLOCK_BYTES
from app.tables.records import CsvFile

_ENOUGH: Final = LABEL_LIMIT + 1  # different values that are counted; what is beyond does not matter
EXACT: Final = 2.0**53  # up to here a float holds every whole number
_SHOWN: Final = 80  # characters of a cell that a message repeats
_LONGEST_LABEL: Final = 256


def profile_csv(path: Path, *, block_bytes: int = BLOCK_BYTES) -> TableSchema:
    """Read the whole file once and describe it.

    Raises InvalidTable for a file that is not a table. Text among numbers is no error here: it makes the column text,
    and the schema keeps the first such cell, because only a job knows whether it needs the column.
    """
    file = CsvFile(path, block_bytes=block_bytes)
    columns = [_Tally(name) for name in file.names]
    rows = 0
    for block in file.blocks():
        rows += len(block.rows)
        for column, cells in zip(columns, block.cells, strict=True):
            column.add(read_cells(cells), block.rows)
    return TableSchema(source_kind="csv", rows=rows, columns=[column.result() for column in columns])


class _Tally:
    """What is known of one column so far."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.missing = self.numbers = self.texts = self.truths = self.infinite = 0
        self.whole = True
        self.first_text: CellAt | None = None
        self.first_infinite: CellAt | None = None
        self.low, self.high = np.inf, -np.inf
        self.values: set[int | float] = set()
        self.words: set[str] = set()

    def add(self, cells: Cells, rows: NDArray[np.int64]) -> None:
        """Add a block of the column."""
        self.missing += cells.text.null_count()
        self.numbers += len(cells.number) - cells.number.null_count()
        self._add_texts(cells, rows)
        self._add_infinities(cells, rows)
        self._add_numbers(cells)

    def _add_texts(self, cells: Cells, rows: NDArray[np.int64]) -> None:
        if len(self.words) < _ENOUGH:
            self.words.update(cells.text.drop_nulls().unique().head(_ENOUGH).to_list())
        text = cells.text.is_not_null() & cells.number.is_null()
        count = int(text.sum())
        if not count:
            return
        self.texts += count
        self.truths += len(cells.text) - booleans(cells.text).null_count()
        if self.first_text is None:
            self.first_text = _first(text, cells, rows)

    def _add_infinities(self, cells: Cells, rows: NDArray[np.int64]) -> None:
        infinite = cells.number.is_infinite().fill_null(value=False)
        count = int(infinite.sum())
        self.infinite += count
        if count and self.first_infinite is None:
            self.first_infinite = _first(infinite, cells, rows)

    def _add_numbers(self, cells: Cells) -> None:
        finite = cells.number.filter(cells.number.is_finite())
        if not len(finite) or self.texts:
            return
        self.low = min(self.low, finite.to_numpy().min())
        self.high = max(self.high, finite.to_numpy().max())
        fractions = cells.number.filter(cells.whole.is_null() & cells.number.is_finite())
        self.whole = self.whole and bool(((fractions.floor() == fractions) & (fractions.abs() < EXACT)).all())
        if len(self.values) < _ENOUGH:
            self.values.update(cells.whole.drop_nulls().unique().head(_ENOUGH).to_list())
            self.values.update(fractions.unique().head(_ENOUGH).to_list())

    def kind(self) -> ColumnKind:
        """Return the kind, now that the whole column was seen; a column without any value counts as numbers."""
        if self.texts and self.texts == self.truths and not self.numbers:
            return "boolean"
        if self.texts:
            return "text"
        return "integer" if self.whole and self.numbers > self.infinite else "number"

    def result(self) -> Column:
        """Describe the column."""
        kind = self.kind()
        labels: list[str] = []
        if kind == "boolean":
            labels = sorted({word.lower() for word in self.words})
        elif kind == "text":
            labels = sorted(self.words)
        elif kind == "integer":
            labels = [str(int(value)) for value in sorted(self.values)]
        numeric = kind in ("number", "integer")
        distinct = min(len(self.values) if numeric else len(labels), _ENOUGH)
        short = bool(labels) and distinct <= LABEL_LIMIT and max(map(len, labels)) <= _LONGEST_LABEL
        has_range = numeric and self.low <= self.high
        return Column(
            name=self.name,
            kind=kind,
            missing=self.missing,
            distinct=distinct,
            labels=labels if short else None,
            minimum=self.low if has_range else None,
            maximum=self.high if has_range else None,
            infinite=self.infinite if numeric else 0,
            first_infinite=self.first_infinite if numeric else None,
            texts=self.texts if kind == "text" else 0,
            first_text=self.first_text if kind == "text" else None,
        )


def _first(mask: pl.Series, cells: Cells, rows: NDArray[np.int64]) -> CellAt:
    index = int(mask.arg_true()[0])
    return CellAt(row=int(rows[index]), value=str(cells.text[index])[:_SHOWN])
