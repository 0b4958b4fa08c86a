"""Problems of a table, and the error that carries all of them at once."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.errors import TrainshedError

FILE_POINTER = "/file"
"""Where a table stands in an upload: the form field that holds it."""


@dataclass(frozen=True, slots=True)
class TableProblem:
    """One problem of a table: what is wrong, where, and what to do.

    `row` counts as a spreadsheet does: the header is row 1, empty lines count, a cell with a line break does not add a
    row. None when the problem is not in one row.
    """

    message: str
    suggestion: str | None = None
    row: int | None = None
    column: str | None = None
    pointer: str = FILE_POINTER


class InvalidTable(TrainshedError):
    """The table cannot be used; `problems` holds what was found, in the order of the file."""

    code = "invalid_data"

    def __init__(self, problems: Sequence[TableProblem]) -> None:
        self.problems: list[TableProblem] = list(problems)
        super().__init__("The table cannot be used. " + " ".join(problem.message for problem in self.problems))
