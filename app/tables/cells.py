"""What a cell means: one rule for checking a file and for reading it."""

from dataclasses import dataclass

import polars as pl

MISSING = ("", "NA", "NaN", "nan", "NULL", "null")
"""Cells that hold nothing, after blanks around them are removed; other spellings of NaN that a float has count too."""

_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Cells:
    """One column of a block, read in every way at once; all of the same length.

    `text`: without blanks around it, null where missing. `number`: null where missing or not a number; may be infinite.
    `whole`: the exact value where the text is an integer literal of 64 bits, else null.
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
    return Cells(text, number, text.cast(pl.Int64, strict=False))


def booleans(text: pl.Series) -> pl.Series:
    """Read true and false in any case; null for anything else."""
    return text.str.to_lowercase().replace_strict(_BOOLEANS, default=None, return_dtype=pl.Boolean)
