"""What one cell means."""

import math

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.tables.cells import MISSING, booleans, read_cells


def read(cell: str | None) -> tuple[str | None, float | None, int | None]:
    cells = read_cells(pl.Series([cell], dtype=pl.String))
    return cells.text[0], cells.number[0], cells.whole[0]


class TestReadCells:
    @pytest.mark.parametrize(
        ("cell", "expected"),
        [
            ("1", ("1", 1.0, 1)),
            (" 1 ", ("1", 1.0, 1)),
            ("1\r", ("1", 1.0, 1)),
            ("1.5", ("1.5", 1.5, None)),
            ("1.0", ("1.0", 1.0, None)),
            ("-7", ("-7", -7.0, -7)),
            ("1e-3", ("1e-3", 0.001, None)),
            ("inf", ("inf", math.inf, None)),
            ("9223372036854775808", ("9223372036854775808", 2.0**63, None)),
            ("oak", ("oak", None, None)),
            ("1_0", ("1_0", None, None)),
            ("0x1", ("0x1", None, None)),
            ("1 0", ("1 0", None, None)),
            ("1,0", ("1,0", None, None)),
            ("\uff11", ("\uff11", None, None)),
            (None, (None, None, None)),
        ],
    )
    def test_text_number_and_whole_number(
        self, cell: str | None, expected: tuple[str | None, float | None, int | None]
    ) -> None:
        assert read(cell) == expected

    @pytest.mark.parametrize("cell", [*MISSING, "  ", "-NaN", "NAN"])
    def test_gaps(self, cell: str) -> None:
        assert read(cell) == (None, None, None)

    @given(st.lists(st.floats(allow_nan=False)))
    def test_floats_are_those_that_python_writes(self, values: list[float]) -> None:
        cells = read_cells(pl.Series([repr(value) for value in values], dtype=pl.String))
        assert cells.number.to_list() == values

    @given(st.lists(st.integers(-(2**63), 2**63 - 1)))
    def test_whole_numbers_are_exact(self, values: list[int]) -> None:
        assert read_cells(pl.Series([str(value) for value in values], dtype=pl.String)).whole.to_list() == values


class TestBooleans:
    def test_any_case_of_true_and_false_and_nothing_else(self) -> None:
        cells = pl.Series(["true", "FALSE", "True", "yes", "1", "t", None])
        assert booleans(cells).to_list() == [True, False, True, None, None, None, None]
