"""What any file of typed columns may hold: how much, and times that can be written down."""

from datetime import date
from typing import Final

import polars as pl

from app.tables.problems import InvalidTable, TableProblem

MOST_CELLS: Final = 2**28
"""Cells of a table in a compressed format: a few kilobytes of it can claim any number of rows."""

_EPOCH: Final = date(1970, 1, 1).toordinal()
_DAYS: Final = (date.min.toordinal() - _EPOCH, date.max.toordinal() - _EPOCH)
_PER_DAY: Final = {"ms": 86_400 * 10**3, "us": 86_400 * 10**6, "ns": 86_400 * 10**9}


def check_moments(column: pl.Series, first_row: int) -> pl.Series:
    """Return a column of dates or times as it is; `first_row` is the number of its first row.

    Raises:
        InvalidTable: a time is outside of the years 1 to 9999, which ISO 8601 does not write, and at which Polars
            panics.
    """
    per_day = _PER_DAY[column.dtype.time_unit] if isinstance(column.dtype, pl.Datetime) else 1
    days = column.to_physical() // per_day
    wrong = ((days < _DAYS[0]) | (days > _DAYS[1])).fill_null(value=False)
    if wrong.any():
        row = first_row + int(wrong.arg_true()[0])
        sentence = f"Row {row}, column '{column.name[:80]}': the time is outside of the years 1 to 9999."
        raise InvalidTable([TableProblem(sentence, "Correct it, or leave the column out.", row, column.name[:80])])
    return column
