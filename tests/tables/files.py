"""Small files that the tables' tests share."""

from collections.abc import Callable
from pathlib import Path

import pytest

from app.tables import InvalidTable, TableProblem

DATA = Path(__file__).parent.parent / "data"


def problems_of(read: Callable[[], object]) -> list[TableProblem]:
    """The problems of a file that must be refused."""
    with pytest.raises(InvalidTable) as caught:
        read()
    assert caught.value.code == "invalid_data"
    return caught.value.problems


def only_problem(read: Callable[[], object]) -> TableProblem:
    problems = problems_of(read)
    assert len(problems) == 1, problems
    return problems[0]
