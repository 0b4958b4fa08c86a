"""The first rows, as JSON can show them."""

import json
from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

from app.tables import preview

Write = Callable[[bytes | str], Path]


class TestText:
    def test_cells_stand_there_as_they_are(self, write: Write) -> None:
        shown = preview(write('a,b\n 1.50,"x, y"\nNA,\n3,z\n'), None, rows=2)
        assert (shown.names, shown.rows) == (["a", "b"], [[" 1.50", "x, y"], ["NA", None]])

    def test_tabs_too(self, write: Write) -> None:
        assert preview(write("a\tb\n1\t2\n"), None, rows=5).rows == [["1", "2"]]

    def test_only_the_beginning_is_read(self, write: Write) -> None:
        path = write("a,b\n" + "1,2\n" * 50_000 + "cut")
        assert preview(path, None, rows=3).rows == [["1", "2"]] * 3


class TestLarge:
    def test_a_header_of_thousands_of_names(self, write: Write) -> None:
        names = [f"expression of gene {number}" for number in range(6000)]  # more than is read at first
        path = write(",".join(names) + "\n" + (",".join(["1"] * 6000) + "\n") * 50)
        shown = preview(path, None, rows=50)
        assert shown.names == names
        assert len(shown.rows) == 33  # 200,000 cells

    def test_a_long_cell_is_cut(self, write: Write) -> None:
        shown = preview(write(f"a,b\n1,{'x' * 100_000}\n2,{'y' * 200}\n"), None, rows=2)
        assert shown.rows == [["1", "x" * 200 + "…"], ["2", "y" * 200]]


class TestTyped:
    def test_parquet_keeps_its_types(self, tmp_path: Path) -> None:
        frame = pl.DataFrame(
            {
                "i": [1, None],
                "x": [0.5, np.nan],
                "b": [True, False],
                "t": ["oak", None],
                "d": [date(2030, 1, 31), None],
                "at": [datetime(2030, 1, 31, 8), None],  # noqa: DTZ001 - UTC is what a time without a zone is
                "p": pl.Series([1.25, None]).cast(pl.Decimal(10, 2)),
            }
        )
        frame.write_parquet(tmp_path / "t")
        rows = preview(tmp_path / "t", None, rows=2).rows
        assert json.loads(json.dumps(rows, allow_nan=False)) == rows
        assert rows == [
            [1, 0.5, True, "oak", "2030-01-31", "2030-01-31T08:00:00.000000", 1.25],
            [None, None, False, None, None, None, None],
        ]

    @pytest.mark.parametrize("dtype", [np.float32, np.int8])
    def test_small_arrays_are_lists_and_large_ones_their_shape(self, tmp_path: Path, dtype: type) -> None:
        small: NDArray[Any] = np.arange(8).reshape(2, 2, 2).astype(dtype)
        large: NDArray[Any] = np.zeros((2, 9, 8), dtype)
        np.savez(tmp_path / "a.npz", small=small, large=large)
        assert preview(tmp_path / "a.npz", None, rows=1).rows == [[[[0, 1], [2, 3]], "array 9 x 8"]]

    def test_numbers_that_json_cannot_write_are_none(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", x=np.array([[np.nan, 1], [np.inf, 2]]), y=np.array([-np.inf, 0.5]))
        assert preview(tmp_path / "a.npz", None, rows=2).rows == [[[None, 1], None], [[None, 2], 0.5]]


class TestBuiltin:
    def test_is_shown_in_numbers(self) -> None:
        # The first flower of Fisher's table, as every textbook prints it.
        assert preview(None, "iris", rows=1).rows == [[5.1, 3.5, 1.4, 0.2, 0]]
