"""What is known of one column so far, block by block, in memory that does not grow with the file."""

import hashlib
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from app.spec.table import LABEL_LIMIT, CellAt, Column, ColumnKind
from app.tables.cells import EXACT, Cells, booleans, times

_ENOUGH: Final = LABEL_LIMIT + 1  # different values that are counted; what is beyond does not matter
_SAMPLE: Final = 4 * _ENOUGH
_SHOWN: Final = 80  # characters of a cell that a message repeats
_LONGEST_LABEL: Final = 256
_LONGEST_KEPT: Final = 1024


class Tally:
    """A column of single values."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.missing = self.numbers = self.texts = self.truths = self.moments = self.infinite = 0
        self.whole = True
        self.first_missing: int | None = None
        self.first_text: CellAt | None = None
        self.first_infinite: CellAt | None = None
        self.low, self.high = np.inf, -np.inf
        self.last: int | None = None
        self.rising = True
        self.values = _Counts()
        self.words = _Counts()

    def add(self, cells: Cells, rows: NDArray[np.int64]) -> None:
        """Add a block of the column."""
        gaps = cells.text.null_count()
        if gaps and self.first_missing is None:
            self.first_missing = int(rows[cells.text.is_null().arg_true()[0]])
        self.missing += gaps
        self.numbers += len(cells.number) - cells.number.null_count()
        self._add_texts(cells, rows)
        self._add_infinities(cells, rows)
        self._add_numbers(cells)

    def _add_texts(self, cells: Cells, rows: NDArray[np.int64]) -> None:
        self.words.add(_shortened(cells.text))
        count = len(cells.text) - cells.text.null_count() - (len(cells.number) - cells.number.null_count())
        if not count:
            return
        if self.texts == self.moments:
            self.moments += len(cells.text) - times(cells.text).null_count()
        self.texts += count
        if not self.words.full:
            self.truths += len(cells.text) - booleans(cells.text).null_count()
        if self.first_text is None:
            self.first_text = _first(cells.text.is_not_null() & cells.number.is_null(), cells, rows)

    def _add_infinities(self, cells: Cells, rows: NDArray[np.int64]) -> None:
        infinite = cells.number.is_infinite().fill_null(value=False)
        count = int(infinite.sum())
        self.infinite += count
        if count and self.first_infinite is None:
            self.first_infinite = _first(infinite, cells, rows)

    def _add_numbers(self, cells: Cells) -> None:
        if self.texts:
            return
        finite = cells.number.filter(cells.number.is_finite()).to_numpy()
        if not len(finite):
            return
        self.low = min(self.low, finite.min())
        self.high = max(self.high, finite.max())
        fractions = cells.number.filter(cells.whole.is_null() & cells.number.is_finite())
        self.whole = self.whole and bool(((fractions.floor() == fractions) & (fractions.abs() < EXACT)).all())
        self._add_rising(cells.whole)
        self.values.add(cells.whole)
        self.values.add(fractions)

    def _add_rising(self, whole: pl.Series) -> None:
        """Whether whole numbers rise from row to row without a gap, as the numbers of rows do."""
        if not self.rising or whole.null_count():
            self.rising = False
            return
        numbers = whole.to_numpy()
        after = self.last is None or int(numbers[0]) > self.last
        self.rising = after and bool((numbers[1:] > numbers[:-1]).all())
        self.last = int(numbers[-1])

    def kind(self) -> ColumnKind:
        """Return the kind, now that the whole column was seen; a column without any value counts as numbers."""
        if self.texts and self.texts == self.truths and not self.numbers:
            return "boolean"
        if self.texts and self.texts == self.moments and not self.numbers:
            return "time"
        if self.texts:
            return "text"
        return "integer" if self.whole and self.numbers > self.infinite else "number"

    def counts(self) -> dict[str, int] | None:
        """How many rows each value has, by label in order; None for fractions, times and more than 1000 values."""
        kind = self.kind()
        counted = self.values if kind == "integer" else self.words
        if kind in ("number", "time") or counted.full:
            return None
        if kind == "integer":
            return {str(int(value)): count for value, count in sorted(counted.found.items())}
        if kind == "boolean":
            lower: dict[str, int] = {}
            for word, count in counted.found.items():
                lower[word.lower()] = lower.get(word.lower(), 0) + count
            return dict(sorted(lower.items()))
        return dict(sorted(counted.found.items()))

    def result(self) -> Column:
        """Describe the column."""
        kind = self.kind()
        counts = self.counts()
        numeric = kind in ("number", "integer")
        distinct = len(counts) if counts is not None else (self.values if numeric else self.words).different
        short = counts and len(counts) <= LABEL_LIMIT and max(map(len, counts)) <= _LONGEST_LABEL
        has_range = numeric and self.low <= self.high
        return Column(
            name=self.name,
            kind=kind,
            missing=self.missing,
            distinct=distinct,
            labels=list(counts) if short and counts else None,
            counts=list(counts.values()) if short and counts else None,
            minimum=self.low if has_range else None,
            maximum=self.high if has_range else None,
            infinite=self.infinite if numeric else 0,
            first_infinite=self.first_infinite if numeric else None,
            texts=self.texts if kind == "text" else 0,
            first_text=self.first_text if kind == "text" else None,
        )


class _Counts:
    """Different values and how often each comes, until there are more than 1000."""

    def __init__(self) -> None:
        self.found: dict[Any, int] = {}
        self.full = False

    @property
    def different(self) -> int:
        return _ENOUGH if self.full else len(self.found)

    def add(self, values: pl.Series) -> None:
        """Add the values that are not null. A column of many different ones is known by its first rows."""
        if self.full:
            return
        if len(values) > _SAMPLE and values.head(_SAMPLE).drop_nulls().n_unique() >= _ENOUGH:
            self.full = True
            return
        counted = values.drop_nulls().value_counts(name="times")
        if counted.height > _ENOUGH:
            self.full = True
            return
        for value, times_ in counted.iter_rows():
            self.found[value] = self.found.get(value, 0) + times_
        self.full = len(self.found) > LABEL_LIMIT


class TensorTally:
    """A column of arrays. A row with a NaN anywhere counts as missing, one with an infinity as infinite."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name = name
        self.shape = shape
        self.missing = self.infinite = 0
        self.first_missing: int | None = None
        self.first_infinite: CellAt | None = None
        self.low, self.high = np.inf, -np.inf
        self.whole = True
        self.different: set[bytes] = set()

    def add(self, values: NDArray[Any], rows: NDArray[np.int64]) -> None:
        """Add a block, (rows, *shape)."""
        flat = values.reshape(len(values), -1)
        if flat.dtype.kind == "f":
            finite = self._add_gaps(flat, rows)
            self.whole = self.whole and bool((finite == np.floor(finite)).all())
        else:
            finite = flat
        if finite.size:
            self.low = min(self.low, float(finite.min()))
            self.high = max(self.high, float(finite.max()))
        for row in flat:
            if len(self.different) >= _ENOUGH:
                break
            self.different.add(hashlib.blake2b(row.tobytes(), digest_size=16).digest())  # a row may be megabytes

    def _add_gaps(self, flat: NDArray[Any], rows: NDArray[np.int64]) -> NDArray[Any]:
        if np.isfinite(flat).all():
            return flat
        empty = np.isnan(flat).any(axis=1)
        infinite = np.isinf(flat).any(axis=1) & ~empty
        self.missing += int(empty.sum())
        self.infinite += int(infinite.sum())
        if empty.any() and self.first_missing is None:
            self.first_missing = int(rows[empty.argmax()])
        if infinite.any() and self.first_infinite is None:
            row = int(rows[infinite.argmax()])
            self.first_infinite = CellAt(row=row, value=str(flat[infinite][0][np.isinf(flat[infinite][0])][0]))
        return np.asarray(flat[np.isfinite(flat)])

    def result(self) -> Column:
        """Describe the column."""
        has_range = self.low <= self.high
        return Column(
            name=self.name,
            kind="integer" if self.whole and has_range else "number",
            missing=self.missing,
            distinct=len(self.different),
            minimum=self.low if has_range else None,
            maximum=self.high if has_range else None,
            infinite=self.infinite,
            first_infinite=self.first_infinite,
            shape=list(self.shape),
        )


def _shortened(text: pl.Series) -> pl.Series:
    """Text of which nothing is as long as a page: such values are told apart by a digest, and kept by it."""
    if (text.str.len_bytes().max() or 0) <= _LONGEST_KEPT:  # type: ignore[operator] # a number, or None
        return text
    return pl.Series(
        text.name,
        [
            value
            if value is None or len(value) <= _LONGEST_KEPT
            else f"{value[:_LONGEST_LABEL]}…{hashlib.sha256(value.encode()).hexdigest()}"
            for value in text
        ],
        dtype=pl.String,
    )


def _first(mask: pl.Series, cells: Cells, rows: NDArray[np.int64]) -> CellAt:
    index = int(mask.arg_true()[0])
    return CellAt(row=int(rows[index]), value=str(cells.text[index])[:_SHOWN])
