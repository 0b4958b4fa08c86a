"""Packing: the same files give the same bytes, and what was packed can be unpacked."""

import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.archives import Limits, UnsafeArchive, check, extract, pack
from app.archives.names import check_name


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    folder = tmp_path / "code"
    (folder / "package").mkdir(parents=True)
    (folder / "train.py").write_bytes(b"print(1)\n" * 1000)
    (folder / "package/run.sh").write_bytes(b"#!/bin/sh\n")
    (folder / "package/run.sh").chmod(0o700)
    return {name: folder / name for name in ("train.py", "package/run.sh")}


class TestSameBytes:
    def test_whatever_the_order_the_times_and_the_modes(self, tmp_path: Path, files: dict[str, Path]) -> None:
        pack(files.items(), tmp_path / "a.zip")
        os.utime(files["train.py"], (1, 1))
        files["train.py"].chmod(0o640)
        pack(reversed(files.items()), tmp_path / "b.zip")
        assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()

    def test_other_bytes_another_name_and_the_right_to_execute_make_another(
        self, tmp_path: Path, files: dict[str, Path]
    ) -> None:
        pack(files.items(), tmp_path / "a.zip")
        files["package/run.sh"].chmod(0o600)
        pack(files.items(), tmp_path / "b.zip")
        pack({"other.py": files["train.py"]}.items(), tmp_path / "c.zip")
        assert len({(tmp_path / name).read_bytes() for name in ("a.zip", "b.zip", "c.zip")}) == 3


class TestBack:
    def test_all_of_it_comes_back(self, tmp_path: Path, files: dict[str, Path]) -> None:
        size = pack(files.items(), tmp_path / "a.zip")
        assert size == (tmp_path / "a.zip").stat().st_size < 1000
        assert extract(tmp_path / "a.zip", tmp_path / "out", Limits()).unpacked_bytes == 9010
        for name, path in files.items():
            assert (tmp_path / "out" / name).read_bytes() == path.read_bytes()
            assert os.access(tmp_path / "out" / name, os.X_OK) == (name == "package/run.sh")

    def test_stored_when_nothing_is_to_be_gained(self, tmp_path: Path, files: dict[str, Path]) -> None:
        pack(files.items(), tmp_path / "a.zip", compress=False)
        with zipfile.ZipFile(tmp_path / "a.zip") as archive:
            assert {entry.compress_type for entry in archive.infolist()} == {zipfile.ZIP_STORED}
        assert check(tmp_path / "a.zip", Limits()).unpacked_bytes == 9010

    def test_nothing_gives_an_empty_archive(self, tmp_path: Path) -> None:
        pack([], tmp_path / "a.zip")
        assert check(tmp_path / "a.zip", Limits()).files == ()

    @given(st.dictionaries(st.text(min_size=1, max_size=20), st.binary(max_size=200), max_size=5))
    @settings(max_examples=60, deadline=None)
    def test_any_names_that_are_taken_come_back(
        self, tmp_path_factory: pytest.TempPathFactory, made: dict[str, bytes]
    ) -> None:
        folder = tmp_path_factory.mktemp("any")
        sources = []
        for number, (name, content) in enumerate(made.items()):
            path = folder / str(number)
            path.write_bytes(content)
            sources.append((name, path))
        try:
            pack(sources, folder / "a.zip")
        except UnsafeArchive:
            assert not (folder / "a.zip").exists()
            return
        found = extract(folder / "a.zip", folder / "out", Limits())
        assert found.names == set(made)
        for name, content in made.items():
            check_name(name)
            assert (folder / "out" / name).read_bytes() == content


class TestRefused:
    @pytest.mark.parametrize("name", ["", "/a", "../a", "a/", "a//b", "a\\b", "\udc80"])
    def test_a_name_that_could_not_be_unpacked(self, tmp_path: Path, files: dict[str, Path], name: str) -> None:
        with pytest.raises(UnsafeArchive):
            pack([(name, files["train.py"])], tmp_path / "a.zip")
        assert not (tmp_path / "a.zip").exists()

    def test_two_names_that_could_be_one(self, tmp_path: Path, files: dict[str, Path]) -> None:
        with pytest.raises(UnsafeArchive, match="capitals"):
            pack([("A", files["train.py"]), ("a", files["train.py"])], tmp_path / "a.zip")

    def test_a_link_is_not_followed(self, tmp_path: Path, files: dict[str, Path]) -> None:
        (tmp_path / "link").symlink_to(files["train.py"])
        with pytest.raises(OSError, match="ymbolic"):
            pack([("a", tmp_path / "link")], tmp_path / "a.zip")
        assert not (tmp_path / "a.zip").exists()

    def test_a_pipe_is_not_waited_for(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe")
        with pytest.raises(OSError, match="'a' is not a regular file"):
            pack([("a", tmp_path / "pipe")], tmp_path / "a.zip")

    def test_an_archive_that_is_there_is_not_overwritten(self, tmp_path: Path, files: dict[str, Path]) -> None:
        (tmp_path / "a.zip").write_bytes(b"mine")
        with pytest.raises(FileExistsError):
            pack(files.items(), tmp_path / "a.zip")
        assert (tmp_path / "a.zip").read_bytes() == b"mine"
