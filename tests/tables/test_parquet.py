"""Parquet: types of its own, arrays, and files that are damaged or claim too much."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.tables import InvalidTable, parquet, profile, read_table
from tests.tables.files import DATA, only_problem

Store = Callable[[pl.DataFrame], Path]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Writes a frame and returns the file's path."""

    def _store(frame: pl.DataFrame) -> Path:
        path = tmp_path / "table"
        frame.write_parquet(path)
        return path

    return _store


class TestColumns:
    def test_each_type_has_its_kind(self, store: Store) -> None:
        frame = pl.DataFrame(
            {
                "small": pl.Series([1, 2, None], dtype=pl.Int8),
                "half": pl.Series([0.5, 1.5, 2.5], dtype=pl.Float32),
                "whole": pl.Series([1.0, 2.0, None]),
                "flag": [True, None, False],
                "text": ["1", "2", None],
                "group": pl.Series(["a", "b", "a"], dtype=pl.Categorical),
                "day": [date(2030, 1, 31), None, date(2031, 1, 1)],
                "moment": pl.Series([datetime(2030, 1, 31, 8, tzinfo=UTC)] * 3),
                "price": pl.Series([1.25, 2.5, 3.0]).cast(pl.Decimal(10, 2)),
                "nothing": pl.Series([None, None, None], dtype=pl.Null),
            }
        )
        schema = profile(store(frame))
        assert (schema.source_kind, schema.rows) == ("parquet", 3)
        assert {column.name: (column.kind, column.missing) for column in schema.columns} == {
            "small": ("integer", 1),
            "half": ("number", 0),
            "whole": ("integer", 1),
            "flag": ("boolean", 1),
            "text": ("text", 1),
            "group": ("text", 0),
            "day": ("time", 1),
            "moment": ("time", 0),
            "price": ("number", 0),
            "nothing": ("number", 3),
        }

    def test_values_are_typed_as_those_of_a_text_file(self, store: Store) -> None:
        frame = pl.DataFrame({"i": [1, 2], "n": [0.5, None], "b": [True, None], "t": ["oak", None]})
        table = read_table(store(frame), None)
        assert table.columns["i"].tolist() == [1, 2]
        np.testing.assert_array_equal(table.columns["n"], [0.5, np.nan])
        assert table.columns["b"].tolist() == [True, None]
        assert table.columns["t"].tolist() == ["oak", None]
        assert table.row_numbers.tolist() == [1, 2]

    def test_a_csv_written_as_parquet_is_the_same_table(self, store: Store) -> None:
        expected = read_table(DATA / "gaps.csv", None)
        found = read_table(store(pl.read_csv(DATA / "gaps.csv")), None)
        assert [column.model_dump() for column in found.schema.columns if column.name != "f2"] == [
            column.model_dump() for column in expected.schema.columns if column.name != "f2"
        ]
        for name, values in expected.columns.items():
            np.testing.assert_array_equal(found.columns[name], values)

    def test_arrays_of_decimals_and_of_wide_integers_are_numbers(self, store: Store) -> None:
        prices = pl.Series([[Decimal("1.25"), Decimal(2)], [None, Decimal(0)]], dtype=pl.Array(pl.Decimal(10, 2), 2))
        wide = pl.Series([[1, 2], [3, 4]], dtype=pl.Array(pl.Int128, 2))
        table = read_table(store(pl.DataFrame({"price": prices, "wide": wide})), None)
        np.testing.assert_array_equal(table.columns["price"], [[1.25, 2], [np.nan, 0]])
        np.testing.assert_array_equal(table.columns["wide"], [[1, 2], [3, 4]])

    def test_names_have_no_blanks_around_them_as_in_a_text_file(self, store: Store) -> None:
        assert [column.name for column in profile(store(pl.DataFrame({" a": [1], "b ": [2]}))).columns] == ["a", "b"]
        assert only_problem(lambda: profile(store(pl.DataFrame({" a": [1], "a": [2]})))).message == (
            "2 columns are named 'a'."
        )

    def test_times_are_brought_to_utc(self, store: Store) -> None:
        moment = pl.Series([datetime(2030, 1, 31, 8)]).dt.replace_time_zone("Europe/Paris")  # noqa: DTZ001
        table = read_table(store(pl.DataFrame({"at": moment, "y": [1]})), None)
        assert table.columns["at"].tolist() == [datetime(2030, 1, 31, 7)]  # noqa: DTZ001 - Paris is an hour ahead

    def test_infinities_and_nan_are_found(self, store: Store) -> None:
        column = profile(store(pl.DataFrame({"x": [1.5, np.inf, np.nan, -np.inf], "y": [1, 2, 3, 4]}))).columns[0]
        assert (column.missing, column.infinite) == (1, 2)
        assert column.first_infinite is not None
        assert column.first_infinite.row == 2

    @pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 2, 1)])
    def test_arrays_of_one_size_are_a_column(self, store: Store, shape: tuple[int, ...]) -> None:
        values = np.arange(4 * np.prod(shape), dtype=np.float64).reshape(4, *shape)
        frame = pl.DataFrame({"x": pl.Series(values.tolist(), dtype=pl.Array(pl.Float64, shape)), "y": [0, 1, 0, 1]})
        table = read_table(store(frame), None)
        assert table.schema.columns[0].shape == list(shape)
        np.testing.assert_array_equal(table.columns["x"], values)

    def test_a_gap_inside_an_array_is_nan(self, store: Store) -> None:
        series = pl.Series([[1, None], [3, 4]], dtype=pl.Array(pl.Int32, 2))
        table = read_table(store(pl.DataFrame({"x": series, "y": [0, 1]})), None)
        np.testing.assert_array_equal(table.columns["x"], [[1, np.nan], [3, 4]])
        assert table.schema.columns[0].missing == 1

    @settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False)), min_size=1, max_size=30))
    def test_numbers_come_back_to_the_last_bit(self, store: Store, rows: list[tuple[int, float]]) -> None:
        whole, number = map(list, zip(*rows, strict=True))
        frame = pl.DataFrame({"i": pl.Series(whole, dtype=pl.Int64), "x": pl.Series(number, dtype=pl.Float64)})
        table = read_table(store(frame), None)
        assert table.columns["i"].tolist() == whole
        assert table.columns["x"].tolist() == number

    def test_blocks_are_put_together_in_order(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(parquet, "_BLOCK_CELLS", 14)
        table = read_table(store(pl.DataFrame({"i": range(100), "y": [0.5] * 100})), None)
        assert table.columns["i"].tolist() == list(range(100))
        assert table.row_numbers.tolist() == list(range(1, 101))


class TestRefused:
    @pytest.mark.parametrize(
        ("series", "kind"),
        [
            (pl.Series([b"x"], dtype=pl.Binary), "Binary"),
            (pl.Series([[1, 2]]), "List"),
            (pl.Series([{"a": 1}]), "Struct"),
            (pl.Series([["a"]], dtype=pl.Array(pl.String, 1)), "Array"),
        ],
    )
    def test_a_column_of_another_type_is_named(self, store: Store, series: pl.Series, kind: str) -> None:
        problem = only_problem(lambda: profile(store(pl.DataFrame({"x": series, "y": [1]}))))
        assert problem.column == "x"
        assert f"Column 'x' has the type {kind}" in problem.message
        assert problem.suggestion is not None

    def test_an_array_that_is_missing_is_named_with_its_row(self, store: Store) -> None:
        series = pl.Series([[1.0, 2.0], None], dtype=pl.Array(pl.Float64, 2))
        problem = only_problem(lambda: profile(store(pl.DataFrame({"x": series, "y": [0, 1]}))))
        assert (problem.row, problem.column) == (2, "x")

    def test_no_rows(self, store: Store) -> None:
        frame = pl.DataFrame({"a": [], "b": []}, schema={"a": pl.Int64, "b": pl.Int64})
        assert only_problem(lambda: profile(store(frame))).message == "The file has columns but no rows."

    def test_a_single_column_is_no_table(self, store: Store) -> None:
        assert (
            "Only one column was found ('a')" in only_problem(lambda: profile(store(pl.DataFrame({"a": [1]})))).message
        )

    def test_names_that_a_spec_could_not_write(self, store: Store) -> None:
        assert "not plain text" in only_problem(lambda: profile(store(pl.DataFrame({"a\x07": [1], "b": [1]})))).message

    def test_a_few_bytes_that_claim_many_rows(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(parquet, "MOST_CELLS", 1000)
        path = store(pl.DataFrame({"a": pl.repeat(0, 600, eager=True), "b": pl.repeat(1, 600, eager=True)}))
        problem = only_problem(lambda: profile(path))
        assert problem.message == "The table has 1,200 cells (600 rows); at most 1,000 are accepted."

    def test_one_very_long_text_that_every_row_repeats(self, store: Store) -> None:
        path = store(pl.DataFrame({"a": ["x" * 65_537] * 3, "b": [1, 2, 3]}))
        problem = only_problem(lambda: profile(path))
        assert (problem.row, problem.column) == (1, "a")
        assert "65,537 bytes" in problem.message

    def test_much_text_in_all(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(parquet, "_BLOCK_TEXT", 100)
        path = store(pl.DataFrame({"a": ["x" * 60] * 3, "b": [1, 2, 3]}))
        assert "180 bytes of text in 3 rows" in only_problem(lambda: profile(path)).message


class TestDamage:
    """Whatever stands in the file, the answer is a sentence, never an exception of a library."""

    def test_a_file_that_was_cut_off(self, store: Store) -> None:
        path = store(pl.DataFrame({"a": range(1000), "b": range(1000)}))
        content = path.read_bytes()
        for keep in (4, 8, 100, len(content) // 2, len(content) - 1):
            path.write_bytes(content[:keep])
            assert "Parquet file cannot be read" in only_problem(lambda: profile(path)).message

    def test_bytes_that_changed(self, store: Store) -> None:
        path = store(pl.DataFrame({"a": range(50), "b": [f"name {index}" for index in range(50)]}))
        content = path.read_bytes()
        random = np.random.default_rng(0)
        for _ in range(150):
            broken = bytearray(content)
            for at in random.integers(4, len(content), 3):
                broken[at] = int(random.integers(0, 256))
            path.write_bytes(bytes(broken))
            outcome: Any = None
            try:
                outcome = profile(path)
            except InvalidTable as error:
                outcome = error
            assert outcome is not None
