"""What is in a table: each column's kind, gaps, range and values, and what a user should know before training on it."""

from pathlib import Path

import numpy as np
import polars as pl

from app.spec.table import TableSchema
from app.tables.blocks import TableFile
from app.tables.budget import within_budget
from app.tables.formats import open_table
from app.tables.notes import Repeats, notes_of
from app.tables.pieces import BLOCK_BYTES
from app.tables.tally import Tally, TensorTally


def profile(path: Path, table_format: str | None = None, *, block_bytes: int = BLOCK_BYTES) -> TableSchema:
    """Read the whole file once and describe it; without a format, as what its content is (`detect`).

    Raises InvalidTable for a file that is not a table. Text among numbers is no error here: it makes the column text,
    and the schema keeps the first such cell, because only a job knows whether it needs the column.
    """
    return describe(open_table(path, table_format, block_bytes=block_bytes))


def profile_csv(path: Path, *, block_bytes: int = BLOCK_BYTES) -> TableSchema:
    """Describe a file that must be CSV."""
    return profile(path, "csv", block_bytes=block_bytes)


def describe(file: TableFile) -> TableSchema:
    """Read a file that was opened, to its end."""
    tallies: list[Tally | TensorTally] = [
        TensorTally(name, file.shapes[name]) if name in file.shapes else Tally(name) for name in file.names
    ]
    repeats = Repeats()
    rows = 0
    for block in file.blocks():
        rows += len(block.rows)
        repeats.add(block)
        for tally, cells in zip(tallies, block.cells, strict=True):
            if isinstance(tally, Tally) and isinstance(cells, pl.Series):
                tally.add(file.read(cells), block.rows)
            elif isinstance(tally, TensorTally) and isinstance(cells, np.ndarray):
                tally.add(cells, block.rows)
    columns = within_budget([tally.result() for tally in tallies])
    names = set(file.names)
    return TableSchema(
        source_kind=file.kind,
        rows=rows,
        columns=columns,
        default_target="y" if file.kind == "npz" and "y" in names and "y" not in file.shapes else None,
        problems=notes_of(columns, tallies, rows, repeats),
    )
