"""Rows for a prediction, read with the rules of the training table: JSON objects, or a CSV file."""

import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from app.errors import TrainshedError
from app.spec.nearest import nearest_word
from app.tables.cells import booleans, read_cells
from app.tables.formats import text_format
from app.tables.records import CsvFile
from workers.data.fitted import NO_CATEGORY, BooleanInput, FittedInput, NumberInput, OneHotInput, Values

_MOST_PROBLEMS: Final = 20
_SHOWN: Final = 80
_HEADER_BYTES: Final = 256 * 1024
_ADVICE_ARRAY: Final = "Send the rows as JSON, the array as nested lists."


@dataclass(frozen=True)
class RowNote:
    """Something about the rows: where, what, and what to do. `row` counts from 1 in JSON, and as in the file in CSV."""

    message: str
    row: int | None = None
    column: str | None = None
    suggestion: str | None = None


class InvalidRows(TrainshedError):
    """The rows cannot be predicted; `problems` has each with row, column and reason, `count` how many there are."""

    code = "invalid_rows"

    def __init__(self, problems: Sequence[RowNote], count: int) -> None:
        self.problems = list(problems)
        self.count = count
        more = f" And {count - len(problems)} more." if count > len(problems) else ""
        super().__init__("The rows cannot be used. " + " ".join(problem.message for problem in problems) + more)


@dataclass(frozen=True)
class RawRows:
    """Checked rows: raw values by column, as `Encoder.apply` takes them, and what the user should know about them."""

    columns: dict[str, Values]
    row_numbers: NDArray[np.int64]
    warnings: tuple[RowNote, ...]

    def __len__(self) -> int:
        return len(self.row_numbers)


class _Problems:
    """Collects problems and raises them together; keeps the first ones and counts the others."""

    def __init__(self) -> None:
        self.kept: list[RowNote] = []
        self.count = 0

    def add(self, message: str, row: int | None = None, column: str | None = None, advice: str | None = None) -> None:
        self.count += 1
        if len(self.kept) < _MOST_PROBLEMS:
            self.kept.append(RowNote(message, row, column, advice))

    @property
    def full(self) -> bool:
        """Whether further problems are only counted."""
        return len(self.kept) >= _MOST_PROBLEMS

    def settle(self) -> None:
        if self.count:
            raise InvalidRows(self.kept, self.count)


def read_json_rows(
    inputs: Sequence[FittedInput], rows: Sequence[object], *, impute: bool, others: Sequence[str]
) -> RawRows:
    """See `Encoder.read_rows`."""
    problems = _Problems()
    if not rows:
        problems.add("There is no row to predict.", advice='Send at least one, {"rows": [{"column": value, …}]}.')
    known = {column.name for column in inputs} | set(others)
    objects: list[Mapping[str, object]] = []
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, Mapping):
            problems.add(f"Row {number} is not an object of columns and values.", number)
            continue
        objects.append(row)
        for name in row:
            if name not in known:
                _unknown_column(problems, name, inputs, number)
    problems.settle()
    columns = {column.name: _json_column(problems, column, objects, impute=impute) for column in inputs}
    problems.settle()
    numbers = np.arange(1, len(rows) + 1, dtype=np.int64)
    return RawRows(columns, numbers, tuple(_unknown_categories(inputs, columns, numbers)))


def _json_column(
    problems: _Problems, column: FittedInput, rows: Sequence[Mapping[str, object]], *, impute: bool
) -> Values:
    shape = column.shape or ()
    numeric = isinstance(column, NumberInput)
    values = np.full((len(rows), *shape), np.nan) if numeric else np.full(len(rows), None, dtype=object)
    for place, row in enumerate(rows):
        value = row.get(column.name)
        if value is None or (isinstance(value, str) and not value.strip()):
            if not impute:
                _gap(problems, column.name, place + 1, absent=column.name not in row)
            continue
        read = _json_value(column, value)
        if isinstance(read, _Refused):
            problems.add(f"Row {place + 1}, column '{column.name}': {read.reason}", place + 1, column.name, read.advice)
        else:
            values[place] = read
    return values


@dataclass(frozen=True)
class _Refused:
    reason: str
    advice: str


def _json_value(column: FittedInput, value: object) -> Any:  # noqa: ANN401 - a number, an array, text or a boolean
    """The raw value, or why it is none."""
    if isinstance(column, BooleanInput):
        return value if isinstance(value, bool) else _Refused(f"{_shown(value)} is not true or false.", "Write true.")
    if isinstance(column, OneHotInput):
        if isinstance(value, str):
            return value.strip()
        example = f'Write text in quotation marks, for example "{next(iter(column.categories), "a")}".'
        return _Refused(f"{_shown(value)} is not text.", example)
    if column.shape is not None:
        return _array(value, column.shape)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _Refused(f"{_shown(value)} is not a number.", "Write a number without quotation marks, for example 1.5.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    return number if math.isfinite(number) else _Refused(f"{_shown(value)} is not a finite number.", "Write 1.5.")


def _array(value: object, shape: tuple[int, ...]) -> NDArray[np.float64] | _Refused:
    wanted = " x ".join(map(str, shape))
    advice = f"Send nested lists of {wanted} numbers."
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths
        return _Refused(f"The lists have different lengths; the array must be {wanted}.", advice)
    if array.dtype.kind not in "iuf":
        return _Refused("It is not an array of numbers.", advice)
    if array.shape != shape:
        return _Refused(f"The array is {' x '.join(map(str, array.shape)) or 'one number'}, not {wanted}.", advice)
    numbers = array.astype(np.float64)
    return numbers if np.isfinite(numbers).all() else _Refused("The array has numbers that are not finite.", advice)


def read_csv_rows(inputs: Sequence[FittedInput], content: bytes, *, impute: bool, others: Sequence[str]) -> RawRows:
    """See `Encoder.read_csv`."""
    problems = _Problems()
    separator = "\t" if text_format(content[:_HEADER_BYTES]) == "tsv" else ","
    file = CsvFile(io.BytesIO(content), separator=separator, fewest_columns=1)
    known = {column.name for column in inputs} | set(others)
    for name in file.names:
        if name not in known:
            _unknown_column(problems, name, inputs, None)
    for column in inputs:
        if column.shape is not None:
            problems.add(
                f"Column '{column.name}' is an array, which no CSV cell can hold.", None, column.name, _ADVICE_ARRAY
            )
        elif column.name not in file.names and not impute:
            problems.add(f"Column '{column.name}' is missing.", None, column.name, "Add it to the file.")
    problems.settle()
    parts: dict[str, list[Values]] = {column.name: [] for column in inputs}
    rows = []
    for block in file.blocks():
        rows.append(block.rows)
        cells = {
            name: cells for name, cells in zip(file.names, block.cells, strict=True) if isinstance(cells, pl.Series)
        }
        empty = pl.Series([None] * len(block.rows), dtype=pl.String)
        for column in inputs:
            given = cells.get(column.name, empty)
            parts[column.name].append(_csv_column(problems, column, given, block.rows, impute=impute))
    problems.settle()
    columns = {name: np.concatenate(part) for name, part in parts.items()}
    numbers = np.concatenate(rows)
    return RawRows(columns, numbers, tuple(_unknown_categories(inputs, columns, numbers)))


def _csv_column(
    problems: _Problems, column: FittedInput, cells: pl.Series, rows: NDArray[np.int64], *, impute: bool
) -> Values:
    read = read_cells(cells)
    text = _words(column, cells, read.text) if isinstance(column, OneHotInput) else read.text
    if not impute:
        for place in np.flatnonzero(text.is_null().to_numpy()):
            _gap(problems, column.name, int(rows[place]), absent=False)
    if isinstance(column, OneHotInput):
        return _objects(text)
    if isinstance(column, BooleanInput):
        truths = booleans(read.text)
        _wrong_cells(problems, column.name, read.text, truths.is_null(), rows, "true or false")
        return _objects(truths)
    finite = read.number.is_finite().fill_null(value=False)
    _wrong_cells(problems, column.name, read.text, ~finite, rows, "a finite number")
    return read.number.fill_null(np.nan).to_numpy()


def _words(column: OneHotInput, cells: pl.Series, text: pl.Series) -> pl.Series:
    """Text that means nothing in a CSV file is text all the same where the model knows it: Parquet can hold `NA`."""
    words = cells.str.strip_chars()
    return text.fill_null(words.set(~words.is_in(column.categories).fill_null(value=False), None))


def _wrong_cells(
    problems: _Problems, name: str, text: pl.Series, unread: pl.Series, rows: NDArray[np.int64], what: str
) -> None:
    for place in (text.is_not_null() & unread).arg_true().to_list():
        cell = str(text[place])[:_SHOWN]
        problems.add(f"Row {rows[place]}, column '{name}': '{cell}' is not {what}.", int(rows[place]), name)


def _objects(series: pl.Series) -> Values:
    values = np.empty(len(series), dtype=object)
    values[:] = series.to_list()
    return values


def _gap(problems: _Problems, name: str, row: int, *, absent: bool) -> None:
    what = "is missing" if absent else "is empty"
    advice = "Fill it in; a model takes gaps only when it was trained with data.missing 'impute'."
    problems.add(f"Row {row}: column '{name}' {what}.", row, name, advice)


def _unknown_column(problems: _Problems, name: object, inputs: Sequence[FittedInput], row: int | None) -> None:
    shown = str(name)[:_SHOWN]
    if problems.full:
        problems.add(shown)  # counted alone: looking for the nearest of many names takes time
        return
    names = [column.name for column in inputs]
    near = nearest_word(str(name), names)
    advice = f"did you mean '{near}'?" if near else f"the model takes {', '.join(names[:8])}."
    where = "" if row is None else f"Row {row}: "
    problems.add(f"{where}There is no column '{shown}'; {advice}", row, shown, near)


def _unknown_categories(
    inputs: Sequence[FittedInput], columns: Mapping[str, Values], rows: NDArray[np.int64]
) -> Iterator[RowNote]:
    """One warning for each category that the model has not been trained with."""
    for column in inputs:
        if not isinstance(column, OneHotInput):
            continue
        values = columns[column.name]
        unknown = [place for place in np.flatnonzero(column.places(values) == NO_CATEGORY) if values[place] is not None]
        first: dict[str, list[int]] = {}
        for place in unknown:
            first.setdefault(values[place], []).append(int(rows[place]))
        for category, where in list(first.items())[:_MOST_PROBLEMS]:
            more = f" and {len(where) - 1} more" if len(where) > 1 else ""
            sentence = (
                f"Column '{column.name}': the model was not trained with '{category[:_SHOWN]}' (row {where[0]}{more}); "
                "it counts as none of the categories."
            )
            yield RowNote(sentence, where[0], column.name)


def _shown(value: object) -> str:
    text = str(value)
    return f"'{text[:_SHOWN]}'"
