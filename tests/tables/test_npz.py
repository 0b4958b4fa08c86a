"""NumPy archives: arrays as columns, and archives that were made to harm."""

import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.tables import InvalidTable, npz, profile, read_table
from tests.tables.files import only_problem

Store = Callable[..., Path]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Writes arrays and returns the file's path."""

    def _store(**arrays: NDArray[Any]) -> Path:
        path = tmp_path / "table.npz"
        np.savez_compressed(path, **arrays)  # type: ignore[arg-type] # the stub takes the first for allow_pickle
        return path

    return _store


def zipped(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def array_file(values: NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, values)
    return stream.getvalue()


def header_file(header: str, content: bytes = b"") -> bytes:
    """An array's file with any header; NumPy's format 1.0 writes its length in two bytes."""
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("latin-1") + content


class TestColumns:
    def test_x_and_y_are_features_and_target(self, store: Store) -> None:
        x, y = np.random.default_rng(0).normal(size=(10, 4, 3)), np.arange(10) % 2
        table = read_table(store(x=x, y=y), None)
        assert (table.schema.source_kind, table.schema.rows, table.schema.default_target) == ("npz", 10, "y")
        assert [(column.name, column.kind, column.shape) for column in table.schema.columns] == [
            ("x", "number", [4, 3]),
            ("y", "integer", None),
        ]
        np.testing.assert_array_equal(table.columns["x"], x)
        np.testing.assert_array_equal(table.columns["y"], y)
        assert table.row_numbers.tolist() == list(range(1, 11))

    def test_one_array_per_column(self, store: Store) -> None:
        path = store(
            height=np.array([1.5, np.nan, 2.5], np.float32),
            count=np.array([1, 2, 3], np.uint8),
            flag=np.array([True, False, True]),
            species=np.array(["oak", "pine tree", ""]),
            at=np.array(["2030-01-31T08", "NaT", "2031-01-01"], dtype="datetime64[s]"),
        )
        table = read_table(path, None)
        assert {column.name: (column.kind, column.missing) for column in table.schema.columns} == {
            "height": ("number", 1),
            "count": ("integer", 0),
            "flag": ("boolean", 0),
            "species": ("text", 1),
            "at": ("time", 1),
        }
        np.testing.assert_array_equal(table.columns["height"], np.array([1.5, np.nan, 2.5], np.float64))
        assert table.columns["flag"].tolist() == [True, False, True]
        assert table.columns["species"].tolist() == ["oak", "pine tree", None]
        assert table.columns["at"].tolist() == [datetime(2030, 1, 31, 8), None, datetime(2031, 1, 1)]  # noqa: DTZ001
        assert table.schema.default_target is None

    @settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(
        st.sampled_from(["<f2", "<f4", "<f8", ">f8", ">f4", "<i2", ">i4", "<u4", "<i8"]),
        st.sampled_from([(), (3,), (2, 2)]),
        st.sampled_from(["C", "F"]),
        st.integers(1, 40),
    )
    def test_any_byte_order_width_and_memory_order_is_the_same_array(
        self, store: Store, dtype: str, shape: tuple[int, ...], order: Literal["C", "F"], rows: int
    ) -> None:
        values = np.random.default_rng(rows).integers(0, 100, (rows, *shape)).astype(dtype)
        table = read_table(store(a=np.array(values, order=order), y=np.arange(rows) / 2), None)
        np.testing.assert_array_equal(table.columns["a"], values.astype(np.float64))
        assert table.columns["a"].dtype in (np.float64, np.int64)

    @pytest.mark.parametrize("fortran", [False, True])
    def test_blocks_are_put_together_in_order(
        self, store: Store, monkeypatch: pytest.MonkeyPatch, *, fortran: bool
    ) -> None:
        monkeypatch.setattr(npz, "_BLOCK_BYTES", 100)
        x = np.arange(600.0).reshape(200, 3)
        table = read_table(store(x=np.asfortranarray(x) if fortran else x, y=np.arange(200)), None)
        np.testing.assert_array_equal(table.columns["x"], x)
        assert table.columns["y"].tolist() == list(range(200))

    @pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
    def test_every_version_of_the_format_is_read(self, tmp_path: Path, version: tuple[int, int]) -> None:
        stream = io.BytesIO()
        np.lib.format.write_array(stream, np.arange(6.0), version=version)
        entries = {"x.npy": stream.getvalue(), "y.npy": array_file(np.arange(6))}
        assert read_table(zipped(tmp_path / "a.npz", entries), None).columns["x"].tolist() == list(range(6))

    def test_an_archive_that_was_not_compressed_is_read_too(self, tmp_path: Path) -> None:
        path = tmp_path / "plain.npz"
        np.savez(path, x=np.ones((4, 2)), y=np.arange(4))
        assert profile(path).rows == 4

    def test_gaps_and_range_of_arrays(self, store: Store) -> None:
        x = np.ones((5, 2, 2))
        x[1, 0, 0], x[3, 1, 1], x[4] = np.nan, -np.inf, 7
        column = profile(store(x=x, y=np.arange(5))).columns[0]
        assert (column.missing, column.infinite, column.minimum, column.maximum) == (1, 1, 1, 7)
        assert column.first_infinite is not None
        assert (column.first_infinite.row, column.first_infinite.value) == (4, "-inf")
        assert column.kind == "integer"


class TestShapes:
    def test_different_numbers_of_rows_are_told_with_the_shapes(self, store: Store) -> None:
        problem = only_problem(lambda: profile(store(x=np.ones((4, 2)), y=np.ones(5))))
        assert problem.message == "The arrays have different numbers of rows: x (4, 2), y (5,)."
        assert problem.column == "y"

    @pytest.mark.parametrize(
        ("values", "words"),
        [
            (np.array(3.0), "is a single value"),
            (np.ones((0,)), "is empty: its shape is (0,)"),
            (np.ones((4, 0)), "is empty: its shape is (4, 0)"),
            (np.ones(4, complex), "has the type complex128"),
            (np.array([b"a"] * 4), "has the type |S1"),
            (np.zeros(4, [("a", int)]), "has several fields in each row"),
            (np.zeros(4, "timedelta64[s]"), "has the type timedelta64[s]"),
            (np.array([["a", "b"]] * 4), "has 2 axes and the type <U1"),
            (np.ones((4, 2), bool), "has 2 axes and the type bool"),
        ],
    )
    def test_an_array_that_can_be_no_column_is_named(self, store: Store, values: NDArray[Any], words: str) -> None:
        problem = only_problem(lambda: profile(store(y=np.arange(4), bad=values)))
        assert problem.message.startswith("Array 'bad' ")
        assert words in problem.message
        assert problem.column == "bad"
        assert problem.suggestion

    def test_a_single_array_is_no_table(self, store: Store) -> None:
        assert "Only one column was found ('x')" in only_problem(lambda: profile(store(x=np.ones((4, 2))))).message


class TestHostile:
    def test_python_objects_are_refused_and_never_loaded(self, tmp_path: Path) -> None:
        class Harm:
            def __reduce__(self) -> tuple[Any, ...]:
                return (Path.touch, (tmp_path / "executed",))

        stream = io.BytesIO()
        np.save(stream, np.array([Harm(), Harm()], dtype=object), allow_pickle=True)
        path = zipped(tmp_path / "a.npz", {"x.npy": stream.getvalue(), "y.npy": array_file(np.arange(2))})
        problem = only_problem(lambda: profile(path))
        assert problem.message == "Array 'x' holds Python objects (pickle), which are never loaded."
        assert not (tmp_path / "executed").exists()

    def test_a_pickle_beside_the_arrays_is_no_array(self, tmp_path: Path) -> None:
        entries = {"x.npy": array_file(np.ones(2)), "harm.pkl": pickle.dumps({"a": 1})}
        assert (
            "'harm.pkl' in the archive is no array"
            in only_problem(lambda: profile(zipped(tmp_path / "a.npz", entries))).message
        )

    @pytest.mark.parametrize("name", ["../x.npy", "/etc/x.npy", "a/b.npy"])
    def test_no_name_leads_anywhere(self, tmp_path: Path, name: str) -> None:
        entries = {name: array_file(np.ones(2)), "y.npy": array_file(np.arange(2))}
        before = sorted(tmp_path.iterdir())
        schema = profile(zipped(tmp_path / "a.npz", entries))
        assert schema.columns[0].name == name.removesuffix(".npy")
        assert sorted(tmp_path.iterdir()) == [*before, tmp_path / "a.npz"]

    @pytest.mark.parametrize(
        "header",
        [
            "",
            "not a literal",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (2 * 2,), }",
            "{'descr': '<f8', 'fortran_order': False, 'shape': ((4),), }",
            "{'descr': '<f8', 'fortran_order': False}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (-4,)}",
            "{'descr': 'no such type', 'fortran_order': False, 'shape': (4,)}",
            "{'descr': '<f8', 'fortran_order': 3, 'shape': (4,)}",
            "{'descr': '<f8', 'fortran_order': False, 'shape': 4}",
            "(" * 5000,
            "__import__('os').getcwd()",
            "{'descr': '<f8', 'fortran_order': False, 'shape': (4,)}" + " " * 20_000,
        ],
    )
    def test_a_header_that_numpy_does_not_write_names_the_array(self, tmp_path: Path, header: str) -> None:
        entries = {"x.npy": header_file(header, b"\0" * 32), "y.npy": array_file(np.arange(4))}
        problem = only_problem(lambda: profile(zipped(tmp_path / "a.npz", entries)))
        assert problem.message.startswith("Array 'x' ")
        assert problem.column == "x"

    @pytest.mark.parametrize("shape", ["(10**9, 10**9)", f"({2**62},)", "(300000000,)"])
    def test_a_header_that_claims_more_than_fits_is_refused_before_anything_is_read(
        self, tmp_path: Path, shape: str
    ) -> None:
        shape = str(tuple(eval(shape)))  # noqa: S307 - written above
        header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}}}"
        entries = {"x.npy": header_file(header), "y.npy": header_file(header)}
        problem = only_problem(lambda: profile(zipped(tmp_path / "a.npz", entries)))
        assert "at most" in problem.message or "too large" in problem.message

    def test_zeros_that_unpack_to_too_much_are_refused(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(npz, "MOST_BYTES", 1_000_000)
        path = store(x=np.zeros((1000, 200)), y=np.zeros(1000))
        assert path.stat().st_size < 10_000
        problem = only_problem(lambda: profile(path))
        assert problem.message == "The arrays unpack to 1,608,000 bytes; at most 1,000,000 are accepted."

    def test_no_more_is_unpacked_than_the_header_says(self, tmp_path: Path) -> None:
        # Three megabytes of zeros behind an array of two numbers; they are found out by one byte.
        entries = {"x.npy": array_file(np.ones(2)) + b"\0" * 3_000_000, "y.npy": array_file(np.arange(2))}
        problem = only_problem(lambda: profile(zipped(tmp_path / "a.npz", entries)))
        assert problem.message == "Array 'x' has more bytes than its shape says."

    def test_less_than_the_header_says_is_cut_off(self, tmp_path: Path) -> None:
        entries = {"x.npy": array_file(np.ones(200))[:-8], "y.npy": array_file(np.arange(200))}
        problem = only_problem(lambda: profile(zipped(tmp_path / "a.npz", entries)))
        assert problem.message == "Array 'x' is damaged or cut off."

    def test_too_many_entries_are_refused_before_they_are_listed(self, tmp_path: Path) -> None:
        entries = {f"f{index}.npy": array_file(np.ones(2)) for index in range(513)}
        problem = only_problem(lambda: profile(zipped(tmp_path / "a.npz", entries), "npz"))
        assert problem.message == "The archive has more than 512 entries."

    def test_the_same_name_twice_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "a.npz"
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", array_file(np.ones(2)))
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr("x.npy", array_file(np.ones(2)))
        assert only_problem(lambda: profile(path)).message == "2 columns are named 'x'."

    def test_other_ways_of_packing_are_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "a.npz"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_BZIP2) as archive:
            archive.writestr("x.npy", array_file(np.ones(2)))
        assert "packed in a way that numpy.savez does not use" in only_problem(lambda: profile(path)).message

    def test_a_changed_number_is_found_by_the_checksum(self, tmp_path: Path) -> None:
        path = tmp_path / "a.npz"
        np.savez(path, x=np.full(50, 0.1), y=np.arange(50))
        content = path.read_bytes()
        path.write_bytes(content.replace(np.float64(0.1).tobytes(), np.float64(0.2).tobytes(), 1))
        assert "Array 'x' is damaged" in only_problem(lambda: profile(path)).message

    def test_bytes_that_changed_never_show_an_exception_of_a_library(self, store: Store) -> None:
        path = store(x=np.random.default_rng(0).normal(size=(20, 3)), y=np.arange(20))
        content = path.read_bytes()
        random = np.random.default_rng(1)
        refused = 0
        for _ in range(200):
            broken = bytearray(content)
            for at in random.integers(4, len(content), 2):
                broken[at] = int(random.integers(0, 256))
            path.write_bytes(bytes(broken))
            try:
                profile(path, "npz")
            except InvalidTable:
                refused += 1
        assert refused > 100
