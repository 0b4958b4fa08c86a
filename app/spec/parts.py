"""How many rows each part of a split gets; the one rule that checks, summaries and trainers share."""

from typing import NamedTuple

from app.spec.data import Split


class Parts(NamedTuple):
    """Rows in each part; they add up to the rows of the table."""

    train: int
    validation: int
    test: int


def part_sizes(rows: int, split: Split) -> Parts:
    """Divide `rows`: validation and test get their share, rounded to the nearest whole number (halves up).

    A share above 0 is at least one row. The training part gets the rest, which may be 0 or less when there are very few
    rows: callers refuse that.
    """
    validation = _share(rows, split.validation)
    test = _share(rows, split.test)
    return Parts(rows - validation - test, validation, test)


def stratified_sizes(rows: int, classes: int, split: Split) -> Parts:
    """Divide as `part_sizes`, but leave one row of each of `classes` to the training part, whatever the shares say."""
    wanted = part_sizes(rows, split)
    if wanted.train < 1:
        return wanted
    spare = max(rows - classes, 0)  # below 0 when the rows of whole classes have gaps
    test = min(wanted.test, spare)
    validation = min(wanted.validation, spare - test)
    return Parts(rows - validation - test, validation, test)


def _share(rows: int, share: float) -> int:
    return max(1, int(rows * share + 0.5)) if share > 0 else 0
