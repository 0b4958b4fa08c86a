"""Times that can be written down, in every unit."""

import polars as pl
import pytest

from app.tables.content import check_moments
from tests.tables.files import only_problem

PER_DAY = {"ms": 86_400_000, "us": 86_400_000_000}
FIRST_DAY, LAST_DAY = -719_162, 2_932_896  # 0001-01-01 and 9999-12-31, counted from 1970-01-01 (proleptic Gregorian)


class TestMoments:
    @pytest.mark.parametrize("unit", ["ms", "us"])
    @pytest.mark.parametrize("day", [FIRST_DAY, LAST_DAY])
    def test_the_first_and_the_last_day_pass(self, unit: str, day: int) -> None:
        column = pl.Series("at", [day * PER_DAY[unit], None]).cast(pl.Datetime(unit))  # type: ignore[arg-type] # a word
        assert check_moments(column, 1) is column
        assert column.dt.to_string("%Y").to_list()[0] in {"0001", "9999"}

    @pytest.mark.parametrize("unit", ["ms", "us"])
    @pytest.mark.parametrize("day", [FIRST_DAY - 1, LAST_DAY + 1, -(10**8) + 1, 10**8])
    def test_what_is_beyond_names_its_row(self, unit: str, day: int) -> None:
        column = pl.Series("at", [None, 0, day * PER_DAY[unit]]).cast(pl.Datetime(unit))  # type: ignore[arg-type] # as above
        problem = only_problem(lambda: check_moments(column, 5))
        assert (problem.row, problem.column) == (7, "at")
        assert problem.message == "Row 7, column 'at': the time is outside of the years 1 to 9999."

    def test_dates_are_days(self) -> None:
        days = pl.Series("on", [LAST_DAY, LAST_DAY + 1], dtype=pl.Int32)
        assert check_moments(days[:1].cast(pl.Date), 1).dt.to_string("%Y-%m-%d").to_list() == ["9999-12-31"]
        assert only_problem(lambda: check_moments(days.cast(pl.Date), 1)).row == 2

    def test_nanoseconds_cannot_go_so_far(self) -> None:
        column = pl.Series("at", [2**63 - 1, -(2**63) + 1]).cast(pl.Datetime("ns"))
        assert check_moments(column, 1) is column
