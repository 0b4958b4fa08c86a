"""What a cell means: one rule for checking a file and for reading it."""

from dataclasses import dataclass
from typing import Final

import polars as pl

MISSING = ("", "NA", "NaN", "nan", "NULL", "null")
"""Cells of a text file that hold nothing, after blanks around them are removed; other spellings of NaN count too."""

_BOOLEANS = {"true": True, "false": False}

EXACT: Final = 2.0**53
"""Up to here a float holds every whole number."""

_TIME: Final = (
    r"^(?<date>\d{4}-\d{2}-\d{2})(?:[Tt ](?<hour>\d{2}):(?<minute>\d{2})(?::(?<second>\d{2})(?:\.(?<part>\d{1,9}))?)?"
    r"(?<zone>[Zz]|[+-]\d{2}:?\d{2})?)?$"
)
_UNITS: Final = {"hour": (3_600_000_000, 23), "minute": (60_000_000, 59), "second": (1_000_000, 59)}
_DAY_US: Final = 86_400_000_000


@dataclass(frozen=True, slots=True)
class Cells:
    """One column of a block, read in every way at once; all of the same length.

    `text`: without blanks around it, null where missing. `number`: null where missing or not a number; may be infinite.
    `whole`: the exact value where the cell is a whole number of 64 bits, else null.
    """

    text: pl.Series
    number: pl.Series
    whole: pl.Series


def read_cells(cells: pl.Series) -> Cells:
    """Read a column of text."""
    text = cells.str.strip_chars()
    number = text.cast(pl.Float64, strict=False)
    gaps = (text.is_in(MISSING) | number.is_nan()).fill_null(value=False)
    if gaps.any():
        text = text.set(gaps, None)
        number = number.set(gaps, None)
    return Cells(text, number, _whole(text, number))


def _whole(text: pl.Series, number: pl.Series) -> pl.Series:
    """Read whole numbers from floats, which is cheap; from the text itself only where a float may have lost digits."""
    size = number.abs()
    exact = ((number.floor() == number) & (size < EXACT)).fill_null(value=False)
    whole = number.cast(pl.Int64, strict=False).set(~exact, None)
    large = (size >= EXACT) & size.is_finite()
    return text.cast(pl.Int64, strict=False).fill_null(whole) if large.any() else whole


def typed_cells(values: pl.Series) -> Cells:
    """Read a column that has a type of its own: numbers, booleans, text, dates or times in UTC.

    Text stays text, whatever it looks like; only null, NaN and empty text are gaps.
    """
    kind = values.dtype
    if kind.is_numeric():
        number = values.cast(pl.Float64, strict=False)
        number = number.set(number.is_nan().fill_null(value=False), None)
        text = values.cast(pl.String).set(number.is_null(), None)
        return Cells(text, number, values.cast(pl.Int64, strict=False) if kind.is_integer() else _whole(text, number))
    if kind == pl.Boolean:
        text = values.cast(pl.String)
    elif kind in (pl.Date, pl.Datetime):
        text = values.dt.to_string("%Y-%m-%dT%H:%M:%S%.6f" if kind == pl.Datetime else "%Y-%m-%d")
    else:
        text = values.cast(pl.String).str.strip_chars()
        text = text.set((text == "").fill_null(value=False), None)
    nothing = pl.Series([None] * len(values), dtype=pl.Float64)
    return Cells(text, nothing, nothing.cast(pl.Int64))


def booleans(text: pl.Series) -> pl.Series:
    """Read true and false in any case; null for anything else."""
    return text.str.to_lowercase().replace_strict(_BOOLEANS, default=None, return_dtype=pl.Boolean)


def times(text: pl.Series) -> pl.Series:
    """Read dates and times as ISO 8601 writes them (2030-01-31, 2030-01-31T08:00:00.5+01:00); null for anything else.

    The answer is in UTC, to the microsecond; a time without a zone is taken as UTC, a date as its midnight.
    """
    parts = text.str.extract_groups(_TIME).struct.unnest()
    moment = parts["date"].str.to_date("%Y-%m-%d", strict=False).cast(pl.Int64) * _DAY_US
    for name, (unit, most) in _UNITS.items():
        count = parts[name].cast(pl.Int64, strict=False).fill_null(0)
        moment = (moment + count * unit).set(count > most, None)
    micros = parts["part"].str.slice(0, 6).str.pad_end(6, "0").cast(pl.Int64, strict=False).fill_null(0)
    return (moment + micros - _offset(parts["zone"])).cast(pl.Datetime("us"))


def _offset(zone: pl.Series) -> pl.Series:
    """Microseconds that a zone is ahead of UTC."""
    digits = zone.str.replace(":", "", literal=True)
    hours = digits.str.slice(1, 2).cast(pl.Int64, strict=False).fill_null(0)
    minutes = digits.str.slice(3, 2).cast(pl.Int64, strict=False).fill_null(0)
    behind = zone.str.starts_with("-").fill_null(value=False).cast(pl.Int64)
    return (hours * 60 + minutes) * 60_000_000 * (1 - 2 * behind)
