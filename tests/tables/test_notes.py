"""What is worth knowing about a table, each with column, count and row."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from app.spec.table import DataNote
from app.tables import notes, profile
from tests.tables.files import DATA

Write = Callable[[bytes | str], Path]


def column_of(write: Write, *cells: object) -> list[DataNote]:
    """Notes about a column of these cells, beside one that never repeats a value and says nothing by itself."""
    text = "".join(f"{cell},{row + 0.5}\n" for row, cell in enumerate(cells))
    return profile(write("a,b\n" + text)).problems


def codes(found: list[DataNote]) -> list[str]:
    return [note.code for note in found]


class TestGaps:
    def test_a_file_with_every_kind_of_gap(self) -> None:
        # Counted by hand: f1 has 9 empty cells, f3 7 times NaN, f2 one inf, the target 2 gaps.
        found = [(note.column, note.code, note.count) for note in profile(DATA / "gaps.csv").problems]
        assert found == [("f1", "missing", 9), ("f2", "infinite", 1), ("f3", "missing", 7), ("label", "missing", 2)]

    def test_the_first_row_is_named(self, write: Write) -> None:
        (note,) = column_of(write, "1", "2", "NA", "3", "")
        assert (note.row, note.message) == (4, "Column 'a' has 2 empty cells of 5, the first in row 4.")

    def test_infinities_have_a_row_too(self, write: Write) -> None:
        (note,) = column_of(write, "1", "-inf", "3")
        assert (note.row, note.message) == (
            3,
            "Column 'a' has 1 infinite value, the first in row 3; they count as empty.",
        )

    def test_of_arrays_it_is_rows_that_are_counted(self, tmp_path: Path) -> None:
        x = np.random.default_rng(0).normal(size=(6, 3))
        x[2, 0], x[4, 1] = np.nan, np.inf
        np.savez(tmp_path / "a.npz", x=x, y=np.arange(6) / 2)
        found = profile(tmp_path / "a.npz").problems
        assert [(note.code, note.count, note.row) for note in found] == [("missing", 1, 3), ("infinite", 1, 5)]


class TestValues:
    @pytest.mark.parametrize("cell", ["7", "oak", "true", "0.5"])
    def test_one_value_in_every_row(self, write: Write, cell: str) -> None:
        (note,) = column_of(write, cell, cell, cell)
        assert (note.code, note.count) == ("constant", 1)

    def test_no_value_in_any_row(self, write: Write) -> None:
        assert [(note.code, note.count) for note in column_of(write, "", "NA")] == [("missing", 2), ("constant", 0)]

    def test_more_text_than_categories_can_be(self, write: Write) -> None:
        found = column_of(write, *(f"name {row}" for row in range(1001)))
        assert [(note.code, note.count) for note in found] == [("too_many_categories", 1001)]

    @pytest.mark.parametrize("make", [lambda row: f"name {row:03}", lambda row: row, lambda row: 3 * row + 7])
    def test_a_name_or_a_number_of_each_row(self, write: Write, make: Callable[[int], object]) -> None:
        (note,) = column_of(write, *(make(row) for row in range(20)))
        assert (note.code, note.count) == ("all_different", 20)

    @pytest.mark.parametrize("make", [lambda row: row % 19, lambda row: -row, lambda row: row + 0.5])
    def test_numbers_that_repeat_fall_or_have_fractions_are_values(
        self, write: Write, make: Callable[[int], object]
    ) -> None:
        assert "all_different" not in codes(column_of(write, *(make(row) for row in range(30))))

    def test_numbers_of_rows_are_found_in_a_file_of_many_blocks(self, write: Write) -> None:
        path = write("i,x\n" + "".join(f"{row},{row % 7 + 0.5}\n" for row in range(5000)))
        assert codes(profile(path, block_bytes=1024).problems) == ["all_different"]

    def test_one_that_comes_again_in_another_block_ends_it(self, write: Write) -> None:
        path = write("i,x\n" + "".join(f"{row % 4999},{row + 0.5}\n" for row in range(5000)))
        assert profile(path, block_bytes=1024).problems == []

    def test_few_rows_are_too_few_to_tell(self, write: Write) -> None:
        assert column_of(write, *range(19)) == []


class TestRareClasses:
    def test_the_reported_file(self) -> None:
        # The case: a = 56, b = 3, c = 1.
        (note,) = profile(DATA / "rare_class.csv").problems
        assert (note.column, note.code, note.count) == ("label", "rare_class", 1)
        assert "1 value in one row only ('c')" in note.message

    def test_many_are_counted_and_some_are_shown(self, write: Write) -> None:
        (note,) = column_of(write, *["oak"] * 30, *(f"tree {number}" for number in range(8)))
        assert note.count == 8
        assert "8 values in one row only ('tree 0', 'tree 1', 'tree 2', 'tree 3', 'tree 4' and 3 more)" in note.message

    @pytest.mark.parametrize("cell", ["1", "true"])
    def test_whole_numbers_and_booleans_are_classes_too(self, write: Write, cell: str) -> None:
        others = {"1": "0", "true": "false"}
        assert codes(column_of(write, *[others[cell]] * 9, cell)) == ["rare_class"]

    def test_measurements_are_no_classes(self, write: Write) -> None:
        # 39 whole numbers, of which 18 come once: like millimetres, not like classes.
        assert column_of(write, *(row * 7 % 39 for row in range(60))) == []
        assert column_of(write, *(row % 40 + 0.5 for row in range(60))) == []


class TestRepeats:
    def test_rows_that_repeat_are_counted_with_the_first(self, write: Write) -> None:
        (note,) = profile(write("a,b\n1,0.5\n2,2.5\n1,0.5\n3.5,3.5\n2,2.5\n1,0.5\n")).problems
        assert (note.column, note.code, note.count, note.row) == (None, "duplicate_rows", 3, 4)
        assert note.message == "3 rows repeat an earlier row in every column, the first is row 4."

    def test_in_a_file_of_many_blocks(self, write: Write) -> None:
        rows = [f"{row / 2},{row % 3}.25\n" for row in range(4000)]
        path = write("a,b\n" + "".join([*rows, rows[17]]))
        (note,) = profile(path, block_bytes=512).problems
        assert (note.count, note.row) == (1, 4002)

    def test_one_cell_that_differs_is_another_row(self, write: Write) -> None:
        assert profile(write("a,b\n1,0.5\n1,0.25\n2,0.5\n")).problems == []

    @pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
    def test_arrays_are_compared_in_every_number(self, tmp_path: Path, dtype: type) -> None:
        x: NDArray[Any] = np.arange(60).reshape(10, 3, 2).astype(dtype)
        y = np.arange(10) / 2
        x[7], y[7] = x[2], y[2]
        x[8, 2, 1] += 1
        np.savez(tmp_path / "a.npz", x=x, y=y)
        (note,) = profile(tmp_path / "a.npz").problems
        assert (note.code, note.count, note.row) == ("duplicate_rows", 1, 8)

    def test_of_parquet_too(self, tmp_path: Path) -> None:
        pl.DataFrame({"a": [1.5, 2.5, 1.5, 3], "b": [2.5, None, 2.5, 1]}).write_parquet(tmp_path / "t")
        assert codes(profile(tmp_path / "t").problems) == ["missing", "duplicate_rows"]

    def test_beyond_a_number_of_rows_nobody_looks(self, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(notes, "_LOOKED_AT", 100)
        path = write("a,b\n" + "1,0.5\n2,0.5\n" * 51)
        assert "duplicate_rows" not in codes(profile(path).problems)


class TestGoodTable:
    def test_has_nothing_to_say(self) -> None:
        assert profile(DATA / "four_classes.csv").problems == []
