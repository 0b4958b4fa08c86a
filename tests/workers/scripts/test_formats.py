"""Files of known formats, whole and cut off at every place; written by the libraries whose formats they are."""

import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from safetensors.numpy import save

from workers.scripts.formats import is_cut_off

h5py = pytest.importorskip("h5py")  # it comes with TensorFlow


def zipped(members: dict[str, bytes], comment: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.comment = comment
    return buffer.getvalue()


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, weights=np.arange(1_000.0))
    return buffer.getvalue()


def parquet() -> bytes:
    buffer = io.BytesIO()
    pl.DataFrame({"a": range(1_000)}).write_parquet(buffer)
    return buffer.getvalue()


def hdf5(**options: str) -> bytes:
    buffer = io.BytesIO()
    with h5py.File(buffer, "w", **options) as file:
        file["weights"] = np.arange(1_000.0)
    return buffer.getvalue()


WHOLE: dict[str, Callable[[], bytes]] = {
    "plain.zip": lambda: zipped({"a": b"1" * 5_000}),
    "comment.zip": lambda: zipped({"a": b"1" * 5_000}, b"a comment"),
    "nested.zip": lambda: zipped({"inner.zip": zipped({"a": b"1" * 100}), "b": b"2" * 5_000}),
    "model.npz": npz,
    "model.safetensors": lambda: bytes(save({"weights": np.arange(1_000.0)})),
    "empty.safetensors": lambda: bytes(save({})),
    "table.parquet": parquet,
    "model.h5": hdf5,
    "latest.h5": lambda: hdf5(libver="latest"),
}


def judged(folder: Path, name: str, content: bytes) -> bool:
    path = folder / name
    path.write_bytes(content)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return is_cut_off(descriptor, name, len(content))
    finally:
        os.close(descriptor)


class TestIsCutOff:
    @pytest.mark.parametrize("name", sorted(WHOLE))
    def test_whole_file_is_whole(self, name: str, tmp_path: Path) -> None:
        assert not judged(tmp_path, name, WHOLE[name]())

    @pytest.mark.parametrize("name", sorted(WHOLE))
    @pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9, 0.999])
    def test_beginning_of_one_is_not(self, name: str, share: float, tmp_path: Path) -> None:
        content = WHOLE[name]()

        assert judged(tmp_path, name, content[: int(len(content) * share)])

    def test_archive_cut_off_behind_a_whole_one_inside(self, tmp_path: Path) -> None:
        inner = zipped({"a": b"1" * 100})
        whole = zipped({"inner.zip": inner, "b": b"2" * 5_000})

        assert judged(tmp_path, "nested.zip", whole[: whole.index(inner) + len(inner)])

    def test_archive_with_wide_numbers_is_whole(self, tmp_path: Path) -> None:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for number in range(70_000):
                archive.writestr(str(number), b"")

        assert not judged(tmp_path, "many.zip", buffer.getvalue())
        assert judged(tmp_path, "many.zip", buffer.getvalue()[:-30])

    @pytest.mark.parametrize("content", [b"", b"text", b"PK", b"\x00" * 100, b"{}"])
    def test_other_formats_are_not_judged(self, content: bytes, tmp_path: Path) -> None:
        assert not judged(tmp_path, "notes.txt", content)

    @pytest.mark.parametrize("header", [b"\xff" * 8, b"\x02\0\0\0\0\0\0\0[]", b"\x05\0\0\0\0\0\0\0{bad}"])
    def test_header_that_is_none_is_no_whole_file(self, header: bytes, tmp_path: Path) -> None:
        assert judged(tmp_path, "model.safetensors", header)


class TestPyTorch:
    def test_saved_weights_are_whole_and_half_of_them_are_not(self, tmp_path: Path) -> None:
        torch = pytest.importorskip("torch")
        torch.save({"weights": torch.zeros(1_000)}, tmp_path / "saved")
        content = (tmp_path / "saved").read_bytes()

        assert not judged(tmp_path, "model.pt", content)
        assert judged(tmp_path, "model.pt", content[: len(content) // 2])
