"""Looking at a folder that somebody else changes meanwhile, and packing what was seen."""

import os
import zipfile
from pathlib import Path

import pytest

from tests.workers.scripts.hosted import open_descriptors
from workers.scripts.packing import pack, packable
from workers.scripts.tree import DEEPEST, Changed, File, TooMany, opened, scan


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a").write_text("first")
    (folder / "deep" / "er" / "b").write_text("second")
    return folder


class TestScan:
    def test_every_file_is_found_with_its_size(self, folder: Path) -> None:
        found = scan(folder, 100)

        assert {name: [(file.name, file.size) for file in entry.files] for name, entry in found.items()} == {
            "a": [("a", 5)],
            "deep": [("deep/er/b", 6)],
        }
        assert (found["a"].is_folder, found["deep"].is_folder, found["deep"].size) == (False, True, 6)

    def test_entries_that_are_not_wanted_are_not_entered(self, folder: Path) -> None:
        assert list(scan(folder, 100, lambda name: name == "a")) == ["a"]

    @pytest.mark.parametrize("where", ["top", "inside"])
    def test_links_and_pipes_are_skipped(self, where: str, folder: Path) -> None:
        place = folder if where == "top" else folder / "deep"
        (place / "link").symlink_to("/etc")
        os.mkfifo(place / "pipe")
        entries = scan(folder, 100).values()

        prefix = "" if where == "top" else "deep/"
        assert {name for entry in entries for name in entry.skipped} == {f"{prefix}link", f"{prefix}pipe"}
        assert {file.name for entry in entries for file in entry.files} == {"a", "deep/er/b"}

    def test_link_in_place_of_the_folder_is_no_folder(self, folder: Path, tmp_path: Path) -> None:
        (tmp_path / "link").symlink_to(folder)

        with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
            scan(tmp_path / "link", 100)

    def test_more_than_the_limit_is_said_with_the_place(self, folder: Path) -> None:
        for number in range(20):
            (folder / "deep" / str(number)).touch()

        with pytest.raises(TooMany, match="deep"):
            scan(folder, 10)

    def test_what_lies_too_deep_is_skipped(self, tmp_path: Path) -> None:
        (tmp_path / "/".join(["d"] * (DEEPEST + 5))).mkdir(parents=True)

        assert len(scan(tmp_path, 1_000)["d"].skipped) == 1


class TestOpened:
    def seen(self, folder: Path, name: str = "deep/er/b") -> File:
        return next(file for entry in scan(folder, 100).values() for file in entry.files if file.name == name)

    def test_file_is_read_as_it_was_seen(self, folder: Path) -> None:
        with opened(folder, self.seen(folder)) as descriptor:
            assert os.read(descriptor, 100) == b"second"

    @pytest.mark.parametrize("how", ["longer", "replaced", "link", "folder link", "pipe", "gone"])
    def test_file_that_is_another_now_is_not_read(self, how: str, folder: Path, tmp_path: Path) -> None:
        file = self.seen(folder)
        path = folder / file.name
        other = tmp_path / "other"
        other.write_text("second")
        if how == "longer":
            path.write_text("second and more")
        elif how == "replaced":
            other.replace(path)
        elif how == "folder link":
            (folder / "deep").rename(tmp_path / "moved")
            (folder / "deep").symlink_to(tmp_path / "moved")
        else:
            path.unlink()
            if how == "link":
                path.symlink_to(other)
            elif how == "pipe":
                os.mkfifo(path)

        with pytest.raises(Changed, match="deep/er/b"), opened(folder, file):
            pytest.fail("it was opened")

    def test_change_while_it_is_open_is_seen_at_the_end(self, folder: Path) -> None:
        file = self.seen(folder)
        with pytest.raises(Changed), opened(folder, file):
            (folder / file.name).write_text("changed")

    def test_no_descriptor_stays_open(self, folder: Path) -> None:
        before = open_descriptors()
        file = self.seen(folder)
        (folder / file.name).unlink()
        with pytest.raises(Changed), opened(folder, file):
            pytest.fail("it was opened")

        assert open_descriptors() == before


class TestPack:
    def test_files_keep_their_bytes_and_modes(self, folder: Path, tmp_path: Path) -> None:
        (folder / "a").chmod(0o755)
        files = [(file.name, file) for entry in scan(folder, 100).values() for file in entry.files]
        packed = pack(folder, files, tmp_path / "x.zip", b"comment")

        assert packed.size_bytes == (tmp_path / "x.zip").stat().st_size
        with zipfile.ZipFile(tmp_path / "x.zip") as archive:
            assert archive.testzip() is None
            assert archive.comment == b"comment"
            assert {info.filename: info.external_attr >> 16 for info in archive.infolist()} == {
                "a": 0o100755,
                "deep/er/b": 0o100644,
            }
            assert archive.read("deep/er/b") == b"second"

    @pytest.mark.parametrize("seconds", [-1, 0, 1 << 40, 4_354_819_200])
    def test_times_before_and_behind_the_format_s_are_no_error(
        self, seconds: int, folder: Path, tmp_path: Path
    ) -> None:
        (file,) = scan(folder, 100)["a"].files
        os.utime(folder / "a", (seconds, seconds))
        seen = next(iter(scan(folder, 100)["a"].files))
        pack(folder, [("a", seen)], tmp_path / "x.zip")

        with zipfile.ZipFile(tmp_path / "x.zip") as archive:
            assert archive.getinfo("a").comment == str(seen.modified_ns).encode()
        assert file.size == seen.size

    def test_nothing_is_left_of_an_archive_that_was_not_finished(self, folder: Path, tmp_path: Path) -> None:
        (file,) = scan(folder, 100)["a"].files
        (folder / "a").unlink()

        with pytest.raises(Changed):
            pack(folder, [("a", file)], tmp_path / "x.zip")
        assert not (tmp_path / "x.zip").exists()

    def test_names_that_no_archive_holds_are_sorted_out(self) -> None:
        file = File("x", 1, 1, 1, executable=False)
        fit, unfit = packable([(name, file) for name in ("a", "A", "b\n", "c/d", "c")])

        assert ([name for name, _ in fit], unfit) == (["a", "c/d"], ["A", "b\n", "c"])
