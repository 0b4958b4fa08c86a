"""Headers of arrays that were made to harm: each was an exception, or time or memory without end, in some reader."""

import io
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.tables import npz, preview, profile, read_table
from app.tables.tally import TensorTally
from tests.tables.files import only_problem


def array_file(descr: str, shape: str, content: bytes) -> bytes:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("latin-1") + content


def archive(path: Path, x: bytes, rows: int = 4) -> Path:
    stream = io.BytesIO()
    np.save(stream, np.arange(rows))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("x.npy", x)
        file.writestr("y.npy", stream.getvalue())
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "table.npz"


class TestHeader:
    def test_a_long_number_that_almost_fits_is_refused_at_once(self, path: Path) -> None:
        # With a pattern that can cut the digits in many ways, 26 of them take 10 s, each one more doubles it.
        problem = only_problem(lambda: profile(archive(path, array_file("<f8", "1" * 5000 + "x", b""))))
        assert problem.message == "Array 'x' has no header that NumPy writes."

    @pytest.mark.parametrize(
        "descr", ["i4,(", ",", "(8", "f8,f8", "(2,)f8", "1f8", "<M8[0s]", "<M8[-1s]", "<U-1", "M8[", "f8\\n"]
    )
    def test_what_numpy_would_evaluate_or_stumble_over_is_no_type(self, path: Path, descr: str) -> None:
        problem = only_problem(lambda: profile(archive(path, array_file(descr, "4,", b"\0" * 32))))
        assert problem.message.startswith("Array 'x' has the type ")
        assert problem.column == "x"

    def test_more_axes_than_any_model_has(self, path: Path) -> None:
        problem = only_problem(lambda: profile(archive(path, array_file("<f8", "4, " + "1, " * 70, b"\0" * 32))))
        assert problem.message == "Array 'x' has 71 axes, of at most 8."

    def test_text_of_no_length_is_empty(self, path: Path) -> None:
        problem = only_problem(lambda: profile(archive(path, array_file("<U0", "4,", b""))))
        assert problem.message == "Array 'x' is empty: its shape is (4,)."


class TestValues:
    @pytest.mark.parametrize("code", [0xD800, 0xDFFF, 0x110000, 0x7FFFFFFF])
    def test_a_number_that_is_no_character_names_its_row(self, path: Path, code: int) -> None:
        content = struct.pack("<4I", 65, 66, code, 67)
        problem = only_problem(lambda: profile(archive(path, array_file("<U1", "4,", content))))
        assert problem.message == "Row 3, array 'x': the text holds a number that is no character."
        assert (problem.row, problem.column) == (3, "x")

    def test_the_last_character_is_one(self, path: Path) -> None:
        content = struct.pack("<4I", 65, 66, 0x10FFFF, 67)
        table = read_table(archive(path, array_file("<U1", "4,", content)), None)
        assert table.columns["x"].tolist() == ["A", "B", "\U0010ffff", "C"]

    def test_truths_are_what_is_not_0(self, path: Path) -> None:
        table = read_table(archive(path, array_file("|b1", "4,", bytes([0, 1, 2, 255]))), None)
        assert table.columns["x"].tolist() == [False, True, True, True]

    @pytest.mark.parametrize("days", [3_000_000, -800_000, 2**40])
    def test_a_time_that_iso_8601_does_not_write_names_its_row(self, path: Path, days: int) -> None:
        times = np.array([0, days, 1, 2], np.int64) * 86_400
        problem = only_problem(lambda: profile(archive(path, array_file("<M8[s]", "4,", times.tobytes()))))
        assert problem.message == "Row 2, column 'x': the time is outside of the years 1 to 9999."

    def test_arrays_of_wide_floats_can_be_shown(self, path: Path) -> None:
        np.savez(path, x=np.array([[0.5], [np.nan]], np.longdouble), y=np.arange(2))
        rows = preview(path, None, rows=2).rows
        assert rows == [[[0.5], 0], [[None], 1]]
        assert type(rows[0][0][0]) is float


class TestNames:
    def test_have_no_blanks_around_them_as_in_a_text_file(self, path: Path) -> None:
        np.savez(path, **{" a": np.ones(2), "b ": np.arange(2)})  # type: ignore[arg-type] # the stub takes them for allow_pickle
        assert [column.name for column in profile(path).columns] == ["a", "b"]


class TestMemory:
    """Some kilobytes of zeros unpack to a thousand times as much."""

    def refused(self, path: Path, **arrays: NDArray[Any]) -> str:
        np.savez_compressed(path, **arrays)  # type: ignore[arg-type] # the stub takes the first for allow_pickle
        return only_problem(lambda: profile(path)).message

    def test_arrays_in_fortran_order_count_together(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(npz, "_LARGEST_AT_ONCE", 100_000)
        block = np.zeros((100, 100), order="F")
        message = self.refused(path, a=block, b=block, y=np.zeros(100))
        assert message == "Array 'a' is in Fortran order and too large for it, with the others like it."

    def test_long_rows_count_together(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(npz, "_LARGEST_AT_ONCE", 100_000)
        row = np.zeros((2, 10_000))
        assert "has rows that are too large, with the others" in self.refused(path, a=row, b=row, y=np.zeros(2))

    def test_small_values_are_still_cells(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(npz, "MOST_CELLS", 1000)
        message = self.refused(path, a=np.zeros(600, np.uint8), y=np.zeros(600, np.uint8))
        assert message == "The table has 1,200 cells (600 rows); at most 1,000 are accepted."

    def test_a_block_of_truths_is_no_larger_than_one_of_numbers(self, path: Path) -> None:
        np.savez_compressed(path, a=np.zeros(600_000, bool), y=np.zeros(600_000, np.uint8))
        sizes = [len(block.rows) for block in npz.NpzFile(path).blocks()]
        assert sizes == [262_144, 262_144, 75_712]  # 8 MiB of twice 16 bytes

    def test_different_rows_are_told_apart_without_keeping_them(self) -> None:
        tally = TensorTally("x", (100_000,))
        values = np.zeros((3, 100_000))
        values[2, -1] = 1
        tally.add(values, np.arange(3))
        assert tally.result().distinct == 2
        assert sum(map(len, tally.different)) < 100

    def test_entries_are_counted_whatever_the_end_record_says(self, path: Path) -> None:
        with zipfile.ZipFile(path, "w") as file:
            for index in range(600):
                file.writestr(f"{index}.npy", b"")
        content = bytearray(path.read_bytes())
        struct.pack_into("<2H", content, content.rfind(b"PK\x05\x06") + 8, 2, 2)
        path.write_bytes(bytes(content))
        assert only_problem(lambda: profile(path, "npz")).message == "The archive has more than 512 entries."
