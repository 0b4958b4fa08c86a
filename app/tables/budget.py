"""How much of a table's content its description may repeat.

A description has the different values of each column. It is kept in the database, in memory and in answers, so a file
of some megabytes must not make hundreds of it.
"""

from collections.abc import Sequence
from typing import Final

from app.spec.table import Column
from app.tables.problems import InvalidTable, TableProblem

MOST_CHARACTERS: Final = 4 * 2**20
_MARKS: Final = 8
"""What each value takes besides its characters: quotes, a comma, its count."""


def within_budget(columns: Sequence[Column]) -> list[Column]:
    """Return the columns with as many of their values as may be kept.

    Text needs its values to be a feature. Whole numbers do not: those of the columns that have most of them are left
    out first.

    Raises:
        InvalidTable: the values of text columns alone are too many.
    """
    sizes = [_size(column) for column in columns]
    over = sum(sizes) - MOST_CHARACTERS
    if over <= 0:
        return list(columns)
    numbers = [place for place, column in enumerate(columns) if column.kind == "integer" and sizes[place]]
    dropped = set()
    for place in sorted(numbers, key=lambda place: -sizes[place]):
        if over <= 0:
            break
        dropped.add(place)
        over -= sizes[place]
    if over > 0:
        largest = columns[max(range(len(columns)), key=lambda place: 0 if place in dropped else sizes[place])]
        sentence = f"The different values of the text columns have more than {MOST_CHARACTERS:,} characters together."
        advice = f"Leave out columns of names or long texts, for example '{largest.name[:80]}'."
        raise InvalidTable([TableProblem(sentence, advice)])
    return [
        column.model_copy(update={"labels": None, "counts": None}) if place in dropped else column
        for place, column in enumerate(columns)
    ]


def _size(column: Column) -> int:
    return sum(len(label) + _MARKS for label in column.labels or ())
