"""A Parquet file as blocks of typed columns."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final

import numpy as np
import polars as pl

from app.spec.table import SourceKind
from app.tables.blocks import Array, Block
from app.tables.cells import Cells, typed_cells
from app.tables.content import MOST_CELLS, check_moments
from app.tables.header import check_names
from app.tables.problems import InvalidTable, TableProblem

_BLOCK_CELLS: Final = 2**22
_LONGEST_TEXT: Final = 64 * 1024
_BLOCK_TEXT: Final = 2**28
_ADVICE: Final = "Write the file again, and upload all of it."


class ParquetFile:
    """A Parquet file to be read once.

    Numbers, booleans, text, dates and times are columns; fixed-size arrays of numbers are columns of arrays. Raises
    InvalidTable for a file that is damaged or cut off, for columns of other types, and for more than `MOST_CELLS`.
    """

    kind: ClassVar[SourceKind] = "parquet"

    def __init__(self, path: Path) -> None:
        with _readable():
            schema = pl.read_parquet_schema(path)
            self._frame = pl.scan_parquet(path, glob=False, hive_partitioning=False)
            self._rows = int(self._frame.select(pl.len()).collect().item())
        self.names = [name.strip() for name in schema]  # as those of a text file, which a prediction may bring
        check_names(self.names)
        problems = [_wrong_type(name, kind) for name, kind in schema.items() if not _fits(kind)]
        if problems:
            raise InvalidTable(problems)
        self.shapes = {name.strip(): kind.shape for name, kind in schema.items() if isinstance(kind, pl.Array)}
        self._width = sum(_width(kind) for kind in schema.values())
        self._check_size()

    def _check_size(self) -> None:
        if not self._rows:
            raise InvalidTable([TableProblem("The file has columns but no rows.", "Add at least one row of values.")])
        cells = self._rows * self._width
        if cells > MOST_CELLS:
            sentence = f"The table has {cells:,} cells ({self._rows:,} rows); at most {MOST_CELLS:,} are accepted."
            raise InvalidTable([TableProblem(sentence, "Leave out columns, or take a sample of the rows.")])

    def blocks(self) -> Iterator[Block]:
        """Yield the rows; of a small table all at once, since each block decodes its row group again."""
        size = max(1, _BLOCK_CELLS // self._width)
        for start in range(0, self._rows, size):
            with _readable():
                frame = self._frame.slice(start, size).collect()
            if frame.height != min(size, self._rows - start):
                raise InvalidTable([TableProblem("The file has fewer rows than it says; it is damaged.", _ADVICE)])
            rows = np.arange(start + 1, start + 1 + frame.height, dtype=np.int64)
            yield Block([_cells(column, rows) for column in frame.get_columns()], rows)

    @staticmethod
    def read(cells: pl.Series) -> Cells:
        """Read a column of a block."""
        return typed_cells(cells)


@contextmanager
def _readable() -> Iterator[None]:
    """A reader that fails on a damaged file may panic, which Python sees as an exception of its own kind."""
    try:
        yield
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException, OSError, ValueError, OverflowError):
        sentence = "The Parquet file cannot be read: it is damaged, cut off or encrypted."
        raise InvalidTable([TableProblem(sentence, _ADVICE)]) from None


def _fits(kind: pl.DataType) -> bool:
    if isinstance(kind, pl.Array):
        return _innermost(kind).is_numeric() and 0 not in kind.shape
    plain = (pl.Boolean, pl.String, pl.Categorical, pl.Enum, pl.Date, pl.Datetime, pl.Null)
    return kind.is_numeric() or isinstance(kind, plain)


def _innermost(kind: pl.DataType) -> pl.DataType:
    while isinstance(kind, pl.Array):
        inner = kind.inner
        kind = inner if isinstance(inner, pl.DataType) else inner()
    return kind


def _width(kind: pl.DataType) -> int:
    return int(np.prod(kind.shape)) if isinstance(kind, pl.Array) else 1


def _wrong_type(name: str, kind: pl.DataType) -> TableProblem:
    sentence = f"Column '{name[:80]}' has the type {str(kind)[:80]}, which cannot be used."
    advice = "Write numbers, true and false, text, dates, or arrays of one size; or leave the column out."
    return TableProblem(sentence, advice, column=name[:80])


def _cells(column: pl.Series, rows: Array) -> pl.Series | Array:
    if isinstance(column.dtype, pl.Array):
        return _array(column, rows)
    if isinstance(column.dtype, pl.Null):
        return column.cast(pl.Float64)
    if isinstance(column.dtype, pl.Date | pl.Datetime):
        check_moments(column, int(rows[0]))
        zoned = isinstance(column.dtype, pl.Datetime) and column.dtype.time_zone is not None
        return column.dt.convert_time_zone("UTC").dt.replace_time_zone(None) if zoned else column
    if isinstance(column.dtype, pl.String | pl.Categorical | pl.Enum):
        return _text(column.cast(pl.String), rows)
    return column


def _text(column: pl.Series, rows: Array) -> pl.Series:
    lengths = column.str.len_bytes()
    longest = lengths.arg_max()
    if longest is not None and int(lengths[longest]) > _LONGEST_TEXT:
        row = int(rows[longest])
        sentence = f"Row {row}, column '{column.name}': the text has {int(lengths[longest]):,} bytes."
        advice = f"At most {_LONGEST_TEXT:,} are accepted; leave the column out."
        raise InvalidTable([TableProblem(sentence, advice, row=row, column=column.name)])
    if int(lengths.sum()) > _BLOCK_TEXT:
        sentence = f"Column '{column.name}' has {int(lengths.sum()):,} bytes of text in {len(column):,} rows."
        raise InvalidTable([TableProblem(sentence, "That is too much; leave the column out.", column=column.name)])
    return column


def _array(column: pl.Series, rows: Array) -> Array:
    empty = column.is_null()
    if empty.any():
        row = int(rows[empty.arg_true()[0]])
        sentence = f"Row {row}, column '{column.name}' has no array ({int(empty.sum())} rows have none)."
        raise InvalidTable([TableProblem(sentence, "Leave such rows out.", row=row, column=column.name)])
    kind = column.dtype
    assert isinstance(kind, pl.Array)  # noqa: S101 - the caller looked; this tells the type checker
    flat = column.reshape((-1,)) if len(kind.shape) == 1 else column.explode()
    while isinstance(flat.dtype, pl.Array):
        flat = flat.explode()
    whole = flat.dtype.is_integer() and flat.dtype != pl.Int128 and not flat.null_count()
    values = flat if whole else flat.cast(pl.Float64, strict=False).fill_null(np.nan)
    return values.to_numpy().reshape(len(column), *kind.shape)
