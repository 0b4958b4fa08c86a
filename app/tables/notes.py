"""What a user should know about a table before training on it; none of it is a reason to refuse the file."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from app.spec.columns import FEW_CLASSES
from app.spec.table import LABEL_LIMIT, Column, DataNote
from app.tables.blocks import Block
from app.tables.tally import Tally, TensorTally

_LOOKED_AT: Final = 4_000_000
"""Rows that are compared with each other: eight bytes are kept of each."""

_FEW_ROWS: Final = 20
_MOST_CLASSES: Final = 100
_SHOWN: Final = 5
_SHOWN_LENGTH: Final = 40


class Repeats:
    """Finds rows that are equal in every column, by a hash of 64 bits."""

    def __init__(self) -> None:
        self._hashes: list[NDArray[np.uint64]] = []
        self._rows: list[NDArray[np.int64]] = []
        self._count = 0

    def add(self, block: Block) -> None:
        """Take a block, while there are not too many rows."""
        self._count += len(block.rows)
        if self._count > _LOOKED_AT:
            self._hashes.clear()
            self._rows.clear()
            return
        columns = [
            cells.alias(str(place)) if isinstance(cells, pl.Series) else pl.Series(str(place), _mixed(cells))
            for place, cells in enumerate(block.cells)
        ]
        self._hashes.append(pl.DataFrame(columns).hash_rows().to_numpy())
        self._rows.append(block.rows)

    def note(self) -> DataNote | None:
        """Say how many rows repeat an earlier one, and which is the first."""
        if not self._hashes:
            return None
        hashes, rows = np.concatenate(self._hashes), np.concatenate(self._rows)
        _, first = np.unique(hashes, return_index=True)
        count = len(hashes) - len(first)
        if not count:
            return None
        repeats = np.ones(len(hashes), dtype=np.bool_)
        repeats[first] = False
        row = int(rows[repeats.argmax()])
        which = "1 row repeats" if count == 1 else f"{count:,} rows repeat"
        sentence = f"{which} an earlier row in every column, the first is row {row}."
        return DataNote(code="duplicate_rows", count=count, row=row, message=sentence)


def _mixed(values: NDArray[np.generic]) -> NDArray[np.uint64]:
    """A hash of each row's array: its numbers' bits times odd numbers that are drawn once, added up modulo 2**64."""
    flat = np.ascontiguousarray(values.reshape(len(values), -1))
    bits = flat.view(f"u{flat.dtype.itemsize}") if flat.dtype.itemsize <= np.dtype(np.uint64).itemsize else flat
    factors = np.random.default_rng(0).integers(0, 2**63, flat.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    return np.asarray((bits.astype(np.uint64) * factors).sum(axis=1, dtype=np.uint64))


def notes_of(
    columns: Sequence[Column], tallies: Sequence[Tally | TensorTally], rows: int, repeats: Repeats
) -> list[DataNote]:
    """Everything worth saying, column by column, then about the whole table."""
    notes: list[DataNote] = []
    for column, tally in zip(columns, tallies, strict=True):
        notes += column_notes(column, rows, tally.first_missing)
        if isinstance(tally, Tally):
            notes += _value_notes(column, tally, rows)
    repeated = repeats.note()
    return notes if repeated is None else [*notes, repeated]


def column_notes(column: Column, rows: int, first_missing: int | None = None) -> Iterator[DataNote]:
    """What a column's description tells by itself."""
    name = column.name
    if column.missing:
        cells = "empty cell" if column.missing == 1 else "empty cells"
        where = f", the first in row {first_missing}" if first_missing is not None else ""
        sentence = f"Column '{name}' has {column.missing:,} {cells} of {rows:,}{where}."
        yield DataNote(column=name, code="missing", count=column.missing, row=first_missing, message=sentence)
    if column.infinite:
        values = "infinite value" if column.infinite == 1 else "infinite values"
        row = column.first_infinite.row if column.first_infinite else None
        where = f", the first in row {row}" if row is not None else ""
        sentence = f"Column '{name}' has {column.infinite:,} {values}{where}; they count as empty."
        yield DataNote(column=name, code="infinite", count=column.infinite, row=row, message=sentence)
    if column.distinct <= 1:
        what = "has one value only" if column.distinct else "has no value in any row"
        sentence = f"Column '{name}' {what}, so nothing can be learned from it."
        yield DataNote(column=name, code="constant", count=column.distinct, message=sentence)
    if column.kind == "text" and column.distinct > LABEL_LIMIT:
        sentence = f"Column '{name}' is text with more than {LABEL_LIMIT:,} different values; it can be no feature."
        yield DataNote(column=name, code="too_many_categories", count=column.distinct, message=sentence)


def _value_notes(column: Column, tally: Tally, rows: int) -> Iterator[DataNote]:
    """What only the counts of values tell: names and numbers of rows, and classes that are very rare."""
    present = rows - column.missing
    different = column.kind == "text" and column.distinct == present and column.distinct <= LABEL_LIMIT
    numbered = column.kind == "integer" and tally.rising
    if rows >= _FEW_ROWS and (different or numbered):
        sentence = (
            f"Column '{column.name}' has another value in every row: it looks like a name or a number of the row, "
            "which says nothing about a new one."
        )
        yield DataNote(column=column.name, code="all_different", count=present, message=sentence)
        return
    counts = tally.counts() or {}
    most = FEW_CLASSES if column.kind == "integer" else _MOST_CLASSES
    if not 1 < len(counts) <= min(most, present // 2):
        return
    single = [label[:_SHOWN_LENGTH] for label, count in counts.items() if count == 1]
    if single:
        shown = ", ".join(f"'{label}'" for label in single[:_SHOWN])
        more = f" and {len(single) - _SHOWN} more" if len(single) > _SHOWN else ""
        which = "1 value" if len(single) == 1 else f"{len(single)} values"
        sentence = (
            f"Column '{column.name}' has {which} in one row only ({shown}{more}); as a class it could be learned from "
            "that row, but not be checked."
        )
        yield DataNote(column=column.name, code="rare_class", count=len(single), message=sentence)
