"""Typed columns in memory."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.tables import profile_csv, read_table
from tests.tables.files import DATA

Write = Callable[[bytes | str], Path]


class TestCsv:
    def test_each_kind_has_its_type(self, write: Write) -> None:
        path = write("n,i,b,t\n1.5,1,true,oak\n2.5,2.0,False, pine tree\n")
        columns = read_table(path, None).columns
        assert columns["n"].dtype == np.float64
        assert columns["n"].tolist() == [1.5, 2.5]
        assert columns["i"].dtype == np.int64
        assert columns["i"].tolist() == [1, 2]
        assert columns["b"].dtype == object
        assert columns["b"].tolist() == [True, False]
        assert columns["t"].dtype == object
        assert columns["t"].tolist() == ["oak", "pine tree"]

    def test_gaps_are_nan_or_none(self, write: Write) -> None:
        path = write("n,i,b,t\n1.5,1,true,oak\n,NA,null,\ninf,2,false,NaN\n")
        columns = read_table(path, None).columns
        np.testing.assert_array_equal(columns["n"], [1.5, np.nan, np.inf])
        np.testing.assert_array_equal(columns["i"], [1, np.nan, 2])
        assert columns["b"].tolist() == [True, None, False]
        assert columns["t"].tolist() == ["oak", None, None]

    def test_times_are_numpys_with_nat_for_a_gap(self, write: Write) -> None:
        values = read_table(write("at,y\n2030-01-31T08:00:00.5Z,1\n,2\n2030-01-31,3\n"), None).columns["at"]
        assert values.dtype == np.dtype("datetime64[us]")
        expected = np.array(["2030-01-31T08:00:00.5", "NaT", "2030-01-31"], dtype="datetime64[us]")
        np.testing.assert_array_equal(values, expected)

    def test_of_a_category_there_is_one_object_however_many_rows_have_it(self, write: Write) -> None:
        values = read_table(write("t,y\n" + "pine tree,1\noak,2\n" * 500), None).columns["t"]
        assert len({id(value) for value in values}) == 2

    def test_an_infinity_in_a_column_of_whole_numbers_is_kept(self, write: Write) -> None:
        np.testing.assert_array_equal(read_table(write("i,y\n1,0\ninf,1\n"), None).columns["i"], [1, np.inf])

    def test_large_whole_numbers_are_exact(self, write: Write) -> None:
        path = write("i,y\n9007199254740993,0\n-9223372036854775808,1\n")
        assert read_table(path, None).columns["i"].tolist() == [9007199254740993, -9223372036854775808]

    def test_row_numbers_are_those_of_the_file(self, write: Write) -> None:
        path = write('\na,b\n1,2\n\n"x\ny",3\n4,5\n')
        assert read_table(path, None).row_numbers.tolist() == [3, 5, 6]

    def test_the_schema_is_the_one_that_validation_sees(self) -> None:
        path = DATA / "gaps.csv"
        assert read_table(path, None).schema == profile_csv(path)

    def test_a_byte_order_mark_is_no_part_of_the_first_name(self) -> None:
        assert list(read_table(DATA / "bom_crlf.csv", None).columns) == ["label", "f1", "f2", "f3"]

    def test_values_are_read_as_numpy_reads_them(self) -> None:
        expected = np.loadtxt(DATA / "four_classes.csv", delimiter=",", skiprows=1)
        columns = read_table(DATA / "four_classes.csv", None).columns
        np.testing.assert_array_equal(np.stack(list(columns.values()), axis=1), expected)

    def test_blocks_are_put_together_in_order(self, write: Write) -> None:
        # About 10 MB, so more than one block of 8 MiB.
        count = 700_000
        path = write("i,half\n" + "".join(f"{index},{index / 2}\n" for index in range(count)))
        table = read_table(path, None)
        np.testing.assert_array_equal(table.columns["i"], np.arange(count))
        np.testing.assert_array_equal(table.columns["half"], np.arange(count) / 2)
        np.testing.assert_array_equal(table.row_numbers, np.arange(2, count + 2))


class TestSource:
    def test_a_built_in_set_is_read_by_name(self) -> None:
        table = read_table(None, "iris")
        assert table.schema.rows == 150
        assert table.row_numbers.tolist() == list(range(2, 152))

    @pytest.mark.parametrize(("path", "builtin"), [(None, None), (DATA / "gaps.csv", "iris")])
    def test_exactly_one_source_must_be_given(self, path: Path | None, builtin: str | None) -> None:
        with pytest.raises(ValueError, match="a path or the name of a built-in set"):
            read_table(path, builtin)

    def test_an_unknown_set_is_a_key_error(self) -> None:
        with pytest.raises(KeyError):
            read_table(None, "mnist")
