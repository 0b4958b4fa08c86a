"""A file is what its content is, and TSV follows the rules of CSV."""

import math
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.tables import FORMATS, TableFormat, detect, format_of, profile, read_table
from tests.tables.files import only_problem

Write = Callable[[bytes | str], Path]


class TestDetect:
    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            ("a,b\n1,2\n", "csv"),
            ("a\tb\n1\t2\n", "tsv"),
            ("\ufeffa\tb\n1\t2\n", "tsv"),
            ("\n\na\tb\n", "tsv"),
            ('"a,b,c"\td\n1\t2\n', "tsv"),
            ('"a\tb",c\n1,2\n', "csv"),
            ("a;b\n1;2\n", "csv"),
            ("a,b\tc\n", "csv"),
            ("a", "csv"),
            ("", "csv"),
        ],
    )
    def test_text_is_told_by_its_first_line(self, write: Write, content: str, expected: TableFormat) -> None:
        assert detect(write(content)) == expected

    def test_parquet_and_npz_are_told_by_their_first_bytes_whatever_the_name(self, tmp_path: Path) -> None:
        parquet, npz = tmp_path / "a.csv", tmp_path / "b.csv"
        pl.DataFrame({"a": [1], "b": [2]}).write_parquet(parquet)
        with npz.open("wb") as file:
            np.savez(file, x=np.ones(2), y=np.ones(2))
        assert (detect(parquet), detect(npz)) == ("parquet", "npz")

    def test_every_format_has_its_name(self) -> None:
        assert [format_of(name) for name in FORMATS] == ["csv", "tsv", "parquet", "npz"]
        with pytest.raises(ValueError, match="no table format 'xlsx'; there are csv, tsv, parquet, npz"):
            format_of("xlsx")


class TestTsv:
    def test_is_read_as_the_same_table_in_csv(self, tmp_path: Path) -> None:
        csv, tsv = tmp_path / "csv", tmp_path / "tsv"
        csv.write_text('a,b,c\n1,"x,y",true\n2.5,,false\n"say ""hi""",z,true\n', encoding="utf-8")
        tsv.write_text('a\tb\tc\n1\tx,y\ttrue\n2.5\t\tfalse\n"say ""hi"""\tz\ttrue\n', encoding="utf-8")
        first, second = read_table(csv, None), read_table(tsv, None)
        assert first.schema == second.schema
        assert {name: values.tolist() for name, values in first.columns.items()} == {
            name: values.tolist() for name, values in second.columns.items()
        }

    def test_a_wrong_number_of_cells_names_the_row(self, write: Write) -> None:
        problem = only_problem(lambda: profile(write("a\tb\n1\t2\t3\n")))
        assert problem.message.startswith("Row 2 has 3 cells, but the header has 2.")
        assert problem.suggestion == "Quote cells that hold a tab."

    def test_what_was_stored_as_csv_is_read_as_csv(self, write: Write) -> None:
        path = write("a\tb\n1\t2\n")
        assert "separated by tabs" in only_problem(lambda: read_table(path, None, "csv")).message
        assert list(read_table(path, None, "tsv").columns) == ["a", "b"]


class TestOtherFiles:
    def test_an_archive_without_arrays_is_taken_for_a_workbook(self, tmp_path: Path) -> None:
        path = tmp_path / "book.xlsx"
        with ZipFile(path, "w") as archive:
            archive.writestr("[Content_Types].xml", "<Types/>")
            archive.writestr("xl/workbook.xml", "<workbook/>")
        problem = only_problem(lambda: detect(path))
        assert problem.message == "The file is an Excel workbook or a ZIP archive, not a table."

    @pytest.mark.parametrize("keep", [4, 30, 200])
    def test_an_archive_that_was_cut_off_is_named_so(self, tmp_path: Path, keep: int) -> None:
        path = tmp_path / "cut.npz"
        np.savez(path, x=np.ones((50, 3)), y=np.ones(50))
        path.write_bytes(path.read_bytes()[:keep])
        assert "ZIP archive that is damaged or cut off" in only_problem(lambda: detect(path)).message


COLUMNS = st.fixed_dictionaries(
    {
        "number": st.lists(st.floats(-1e9, 1e9) | st.just(math.nan), min_size=6, max_size=6),
        "whole": st.lists(st.integers(-(2**63), 2**63 - 1), min_size=6, max_size=6),
        "flag": st.lists(st.booleans(), min_size=6, max_size=6),
        "text": st.lists(st.sampled_from(["oak", "pine tree", "é", "🙂", ""]), min_size=6, max_size=6),
        "day": st.lists(st.dates(date(1700, 1, 1), date(2200, 1, 1)), min_size=6, max_size=6),
    }
)


class TestOneTable:
    """The same columns in every format are the same table: kinds, gaps, values."""

    @settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(COLUMNS)
    def test_whatever_the_format(self, tmp_path: Path, columns: dict[str, list[Any]]) -> None:
        frame = pl.DataFrame(columns | {"text": [text or None for text in columns["text"]]})
        frame.write_csv(tmp_path / "csv")
        frame.write_csv(tmp_path / "tsv", separator="\t")
        frame.write_parquet(tmp_path / "parquet")
        types = {"day": "datetime64[D]"}
        arrays = {name: np.array(values, dtype=types.get(name)) for name, values in columns.items()}
        with (tmp_path / "npz").open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type] # the stub takes the first for allow_pickle

        tables = {name: read_table(tmp_path / name, None) for name in FORMATS}

        first = tables["csv"]
        for name, table in tables.items():
            assert [(each.name, each.kind, each.missing, each.distinct) for each in table.schema.columns] == [
                (each.name, each.kind, each.missing, each.distinct) for each in first.schema.columns
            ], name
            for column, values in table.columns.items():
                assert values.dtype == first.columns[column].dtype, (name, column)
                np.testing.assert_array_equal(values, first.columns[column], err_msg=f"{name} {column}")
