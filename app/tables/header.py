"""The header row: names of the columns, checked."""

import csv
import io
import math
from collections import Counter

from app.spec.base import LONGEST_COLUMN_NAME, MOST_COLUMNS, not_plain
from app.tables.problems import InvalidTable, TableProblem

_FEWEST = 2
_OTHER_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "vertical bars"}


def names_of(line: str, row: int, *, separator: str = ",", fewest: int = 2) -> list[str]:
    """Read the header line; names are stripped of blanks around them.

    Raises InvalidTable for fewer columns than `fewest` (another separator?), names that are blank, repeated, too long
    or not plain text, and for a first row that holds numbers alone, which is a file without a header.
    """
    line = line.removesuffix("\r")
    if "\r" in line and '"' not in line:
        sentence = "Rows end in carriage returns alone, as on old Macs."
        raise InvalidTable([TableProblem(sentence, "Save the file with line feeds (Unix) or both (Windows).", row=row)])
    cells = next(csv.reader(io.StringIO(line, newline=""), delimiter=separator), [])
    names = [cell.strip() for cell in cells]
    problems = _shape_problems(names, row, separator, fewest) or _name_problems(names, row)
    if problems:
        raise InvalidTable(problems)
    return names


def check_names(names: list[str]) -> None:
    """Raise InvalidTable for names of a file without a header row that a spec could not write, or too few or many."""
    problems = []
    if len(names) < _FEWEST:
        problems.append(_too_few(names[0] if names else "", None))
    elif len(names) > MOST_COLUMNS:
        problems.append(_too_many(len(names), None))
    problems = problems or _name_problems(names, None)
    if problems:
        raise InvalidTable(problems)


def _shape_problems(names: list[str], row: int, separator: str, fewest: int) -> list[TableProblem]:
    if names and names[0].lower().startswith("sep="):
        sentence = "The first row is a note for spreadsheets (sep=…), not the names of the columns."
        return [TableProblem(sentence, "Remove that row.", row=row)]
    if len(names) < fewest:
        return [_one_column(names[0], row, separator)]
    if len(names) > MOST_COLUMNS:
        return [_too_many(len(names), row)]
    if all(_is_number(name) for name in names if name) and any(names):
        sentence = (
            f"The first row holds only numbers ({', '.join(names[:3])}, …); it must hold the names of the columns."
        )
        return [TableProblem(sentence, "Add a first row with names, for example f1,f2,label.", row=row)]
    return []


def _too_many(count: int, row: int | None) -> TableProblem:
    sentence = f"The table has {count:,} columns; at most {MOST_COLUMNS:,} are accepted."
    return TableProblem(sentence, "Leave out columns that are not needed.", row=row)


def _too_few(name: str, row: int | None, separator: str = ",") -> TableProblem:
    sentence = f"Only one column was found ('{name[:60]}'); a table needs a target and at least one feature."
    advice = None if row is None else f"Separate cells by {'tabs' if separator == chr(9) else 'commas'}."
    return TableProblem(sentence, advice, row=row)


def _one_column(name: str, row: int, separator: str) -> TableProblem:
    for other, word in _OTHER_SEPARATORS.items():
        if other in name and other != separator:
            parts = ",".join(part.strip() for part in name.split(other)[:4])
            return TableProblem(
                f"Only one column was found; the file seems to be separated by {word}.",
                f"Save it with commas between cells and points in decimal numbers, header: {parts}",
                row=row,
            )
    return _too_few(name, row, separator)


def _name_problems(names: list[str], row: int | None) -> list[TableProblem]:
    problems = []
    counts = Counter(names)
    for number, name in enumerate(names, start=1):
        if not name:
            sentence = f"Column {number} has no name."
            problems.append(TableProblem(sentence, f"Name it, for example column_{number}, or remove it.", row=row))
        elif len(name) > LONGEST_COLUMN_NAME:
            sentence = (
                f"The name of column {number} has {len(name):,} characters; at most {LONGEST_COLUMN_NAME} are accepted."
            )
            problems.append(TableProblem(sentence, "Shorten the name.", row=row, column=name[:60]))
        elif not_plain(name):
            sentence = f"The name of column {number} is not plain text: {not_plain(name)}."
            problems.append(TableProblem(sentence, "Write the name on one line, without control characters.", row=row))
        elif counts[name] > 1 and names.index(name) == number - 1:
            sentence = f"{counts[name]} columns are named '{name}'."
            problems.append(TableProblem(sentence, f"Rename one, for example {name}_2.", row=row, column=name))
    return problems


def _is_number(text: str) -> bool:
    """Tell a number from a name: 2020_01, which Python reads as a number, is a name, and so are nan and inf."""
    try:
        return "_" not in text and math.isfinite(float(text))
    except ValueError:
        return False
