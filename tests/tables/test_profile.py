"""What is found out about good files: kinds, gaps, ranges, values."""

import csv
import io
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.spec import CellAt, Column
from app.tables import profile_csv, read_table
from app.tables.cells import read_cells
from app.tables.tally import Tally
from tests.tables.files import DATA

Write = Callable[[bytes | str], Path]
same_file = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def column_of(write: Write, *cells: str) -> Column:
    """The profile of one column with the given cells, beside a column of numbers."""
    buffer = io.StringIO()
    rows = csv.writer(buffer, lineterminator="\n")
    rows.writerow(["c", "other"])
    rows.writerows([cell, 1] for cell in cells)
    return profile_csv(write(buffer.getvalue())).columns[0]


class TestLongText:
    def test_values_that_differ_at_their_end_alone_are_different(self, write: Write) -> None:
        found = column_of(write, *(2000 * "x" + end for end in "aabc"))
        assert (found.kind, found.distinct, found.labels) == ("text", 3, None)

    def test_are_kept_by_a_digest(self) -> None:
        tally = Tally("c")
        text = pl.Series(["y" * 5_000_000, "short", None, "y" * 5_000_000])
        tally.add(read_cells(text), np.arange(4))
        assert sorted(map(len, tally.words.found)) == [5, 256 + 1 + 64]  # the start, an ellipsis, SHA-256
        assert sorted(tally.words.found.values()) == [1, 2]


class TestKind:
    @pytest.mark.parametrize(
        ("cells", "kind"),
        [
            (["1", "2"], "integer"),
            (["0", " 0", "1", "1.0"], "integer"),
            (["+1", "-2", "1e3", "007"], "integer"),
            (["1.5", "2"], "number"),
            ([".5", "5.", "-1e-3"], "number"),
            (["1e300", "2"], "number"),  # whole, but beyond what a float tells apart
            (["123456789012345678901", "2"], "number"),
            (["true", "false"], "boolean"),
            (["True", "FALSE", ""], "boolean"),
            (["true", "1"], "text"),
            (["a", "b"], "text"),
            (["1", "x"], "text"),
            (["1_000", "2"], "text"),
            (["0x10", "2"], "text"),
            (["1,5", "2"], "text"),
            (["1 234", "2"], "text"),
            (["1", "inf"], "integer"),
            (["1.5", "-Infinity"], "number"),
            (["", "NA"], "number"),
        ],
    )
    def test_it_is_one_for_the_whole_column(self, write: Write, cells: list[str], kind: str) -> None:
        assert column_of(write, *cells).kind == kind

    def test_a_single_text_cell_in_a_large_file_decides(self, write: Write) -> None:
        # A reader that types each chunk by itself finds numbers in most of this file.
        lines = [f"{index},{index % 2}" for index in range(60_000)]
        lines[30_000] = "30000,x"
        schema = profile_csv(write("i,label\n" + "\n".join(lines) + "\n"), block_bytes=4096)
        assert schema.columns[1] == Column(
            name="label",
            kind="text",
            missing=0,
            distinct=3,
            labels=["0", "1", "x"],
            counts=[29_999, 30_000, 1],
            texts=1,
            first_text=CellAt(row=30_002, value="x"),
        )
        assert schema.columns[0].distinct == 1001


class TestValues:
    def test_numbers_that_are_equal_are_one_value(self, write: Write) -> None:
        column = column_of(write, "0", " 0", "1", "1.0", "1e0", "-0")
        assert (column.distinct, column.labels) == (2, ["0", "1"])

    def test_whole_numbers_are_ordered_by_value(self, write: Write) -> None:
        assert column_of(write, "10", "9", "-1", "100").labels == ["-1", "9", "10", "100"]

    def test_large_whole_numbers_are_told_apart(self, write: Write) -> None:
        # 2**53 and 2**53 + 1 are the same float.
        assert column_of(write, "9007199254740992", "9007199254740993").labels == [
            "9007199254740992",
            "9007199254740993",
        ]

    def test_text_is_ordered_and_stripped_outside_but_not_inside(self, write: Write) -> None:
        assert column_of(write, "pine tree", " oak", "birch\t", "oak").labels == ["birch", "oak", "pine tree"]

    def test_true_and_false_have_one_spelling(self, write: Write) -> None:
        column = column_of(write, "TRUE", "true", "False")
        assert (column.distinct, column.labels) == (2, ["false", "true"])

    @pytest.mark.parametrize(
        ("count", "distinct", "listed"),
        [(999, 999, True), (1000, 1000, True), (1001, 1001, False), (5000, 1001, False)],
    )
    def test_up_to_a_thousand_values_are_listed(self, write: Write, count: int, distinct: int, *, listed: bool) -> None:
        for prefix in ("", "x"):
            column = column_of(write, *(f"{prefix}{index}" for index in range(count)))
            assert column.distinct == distinct
            assert (column.labels is not None) == listed

    def test_fractions_are_counted_but_no_labels(self, write: Write) -> None:
        column = column_of(write, "0.5", "1.5", "0.5")
        assert (column.distinct, column.labels) == (2, None)

    def test_very_long_text_is_not_kept_as_labels(self, write: Write) -> None:
        column = column_of(write, "x" * 257, "y")
        assert (column.distinct, column.labels) == (2, None)

    def test_range_is_of_finite_numbers(self, write: Write) -> None:
        column = column_of(write, "3.5", "-2", "inf", "-inf", "", "NaN")
        assert (column.minimum, column.maximum) == (-2, 3.5)

    def test_text_has_no_range(self, write: Write) -> None:
        column = column_of(write, "1", "x")
        assert (column.minimum, column.maximum) == (None, None)


class TestTimes:
    def test_dates_and_times_are_a_kind_of_their_own(self, write: Write) -> None:
        column = column_of(write, "2030-01-31", "", "2030-01-31T08:00:00Z", "2029-01-31")
        assert (column.kind, column.missing, column.distinct, column.labels) == ("time", 1, 3, None)

    @pytest.mark.parametrize("cell", ["oak", "2030", "2030-02-30"])
    def test_one_cell_of_another_kind_makes_it_text(self, write: Write, cell: str) -> None:
        assert column_of(write, "2030-01-31", "2030-02-01", cell).kind == "text"

    def test_the_whole_file_decides(self, write: Write) -> None:
        rows = ["2030-01-31,1\n"] * 2000
        assert profile_csv(write("a,b\n" + "".join(rows)), block_bytes=512).columns[0].kind == "time"
        rows[1999] = "yesterday,1\n"
        assert profile_csv(write("a,b\n" + "".join(rows)), block_bytes=512).columns[0].kind == "text"


class TestGaps:
    @pytest.mark.parametrize("cell", ["", " ", "NA", "NaN", "nan", "-nan", "NULL", "null"])
    def test_cells_that_hold_nothing(self, write: Write, cell: str) -> None:
        column = column_of(write, "1.5", cell)
        assert (column.kind, column.missing) == ("number", 1)

    @pytest.mark.parametrize("cell", ["n/a", "none", "-", "?", "Na"])
    def test_other_words_are_text(self, write: Write, cell: str) -> None:
        column = column_of(write, "1.5", cell)
        assert (column.kind, column.missing) == ("text", 0)
        assert column.first_text == CellAt(row=3, value=cell)

    def test_a_column_of_gaps_has_no_values(self, write: Write) -> None:
        column = column_of(write, "", "NA")
        assert (column.missing, column.distinct, column.labels, column.minimum) == (2, 0, None, None)

    @pytest.mark.parametrize("cell", ["inf", "-inf", "Infinity", "+INF", "1e999"])
    def test_infinities_are_counted_with_the_first_row(self, write: Write, cell: str) -> None:
        column = column_of(write, "1.5", "2", cell, cell)
        assert (column.infinite, column.first_infinite) == (2, CellAt(row=4, value=cell))
        assert column.missing == 0

    def test_a_file_with_every_kind_of_gap(self) -> None:
        # Counted by hand: f1 has 9 empty cells, f3 7 times NaN, f2 one inf, the target 2 gaps.
        schema = profile_csv(DATA / "gaps.csv")
        assert {column.name: (column.missing, column.infinite) for column in schema.columns} == {
            "f1": (9, 0),
            "f2": (0, 1),
            "f3": (7, 0),
            "label": (2, 0),
        }


class TestTexts:
    def test_bad_cells_of_a_number_column_are_found(self) -> None:
        # Data rows 58 and 94 of the file, so rows 59 and 95 counted with the header.
        columns = {column.name: column for column in profile_csv(DATA / "mixed_types.csv").columns}
        assert (columns["f2"].first_text, columns["f2"].texts) == (CellAt(row=59, value="unknown"), 1)
        assert (columns["f3"].first_text, columns["f3"].texts) == (CellAt(row=95, value="1 234"), 1)
        assert (columns["label"].kind, columns["label"].labels) == ("integer", ["0", "1"])

    def test_a_long_cell_is_shortened_in_the_description(self, write: Write) -> None:
        column = column_of(write, "1", "x" * 500)
        assert column.first_text == CellAt(row=3, value="x" * 80)


class TestFiles:
    def test_a_byte_order_mark_and_windows_line_ends_leave_no_trace(self) -> None:
        schema = profile_csv(DATA / "bom_crlf.csv")
        assert [column.name for column in schema.columns] == ["label", "f1", "f2", "f3"]
        assert (schema.rows, schema.columns[0].labels) == (40, ["0", "1"])

    def test_a_plain_file(self) -> None:
        schema = profile_csv(DATA / "four_classes.csv")
        assert (schema.source_kind, schema.rows, schema.default_target) == ("csv", 200, None)
        assert [column.kind for column in schema.columns] == ["number", "number", "number", "integer"]
        assert schema.columns[3].labels == ["0", "1", "2", "3"]

    def test_empty_lines_count_as_rows_of_the_file_but_not_of_the_table(self, write: Write) -> None:
        schema = profile_csv(write("\na,b\n\n1,2\n\n\nx,3\n\n"))
        assert schema.rows == 2
        assert schema.columns[0].first_text == CellAt(row=7, value="x")

    def test_a_cell_with_a_line_break_is_one_row(self, write: Write) -> None:
        schema = profile_csv(write('a,b\n"one\ntwo",1\nx,y\n'))
        assert schema.rows == 2
        assert schema.columns[1].first_text == CellAt(row=3, value="y")

    def test_a_last_line_without_its_end_is_a_row(self, write: Write) -> None:
        assert profile_csv(write("a,b\n1,2\n3,4")).rows == 2


CELL = st.sampled_from(
    ["", "1", "2.5", "-3", "NA", "inf", "x", "a,b", 'say "hi"', "two\nlines", " 7 ", "true", "1e3", "é", "🙂"]
)
TABLE = st.integers(2, 4).flatmap(
    lambda width: st.lists(st.lists(CELL, min_size=width, max_size=width), min_size=1, max_size=12)
)


class TestAgainstTheStandardLibrary:
    @same_file
    @given(TABLE, st.sampled_from(["\n", "\r\n"]), st.integers(120, 300))
    def test_cells_are_those_that_pythons_csv_reads(
        self, tmp_path: Path, rows: list[list[str]], line_end: str, block_bytes: int
    ) -> None:
        path = tmp_path / "table.csv"
        names = [f"c{index}" for index in range(len(rows[0]))]
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator=line_end).writerows([names, *rows])
        schema = profile_csv(path, block_bytes=block_bytes)
        assert schema.rows == len(rows)
        gaps = {"", "NA"}
        for column, cells in zip(schema.columns, zip(*rows, strict=True), strict=True):
            present = [cell.strip() for cell in cells if cell.strip() not in gaps]
            assert column.missing == len(cells) - len(present)
            if column.kind == "text":
                assert column.labels == sorted(set(present))

    @same_file
    @given(TABLE, st.integers(120, 300))
    def test_the_size_of_a_block_changes_nothing(self, tmp_path: Path, rows: list[list[str]], block_bytes: int) -> None:
        path = tmp_path / "table.csv"
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([[f"c{index}" for index in range(len(rows[0]))], *rows])
        assert profile_csv(path, block_bytes=block_bytes) == profile_csv(path)

    @same_file
    @given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=20))
    def test_numbers_are_read_to_the_last_bit(self, tmp_path: Path, values: list[float]) -> None:
        path = tmp_path / "table.csv"
        path.write_text("x,y\n" + "".join(f"{value!r},0.5\n" for value in values), encoding="utf-8")
        table = read_table(path, None)
        assert [math.copysign(1, found) * abs(found) for found in table.columns["x"].tolist()] == values
