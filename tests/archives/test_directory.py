"""The directory of an archive is where every reader looks for it, and is bounded before anything is made of it."""

import struct
import tracemalloc
from pathlib import Path

import pytest

from app.archives import ArchiveTooLarge, Limits, NotAnArchive, contents
from app.archives.directory import check_directory
from tests.archives.making import Entry, archive, end, head, listing, plain, wide_end

ONE = Entry("train.py", b"print(1)\n")


def refused(tmp_path: Path, content: bytes, limits: Limits | None = None) -> str:
    path = tmp_path / "a.zip"
    path.write_bytes(content)
    with pytest.raises(NotAnArchive) as caught:
        contents(path, limits or Limits())
    return str(caught.value)


class TestPlainLayout:
    def test_the_files_end_where_the_directory_begins(self, tmp_path: Path) -> None:
        path = tmp_path / "a.zip"
        path.write_bytes(archive(ONE))
        with path.open("rb") as file:
            assert check_directory(file, Limits()) == (len(head(ONE)), len(archive(ONE)))

    @pytest.mark.parametrize("comment", [b"", b"4f3c2a0d9e", b"c" * 65535])
    def test_a_comment_is_passed_over(self, tmp_path: Path, comment: bytes) -> None:
        directory = listing(ONE, 0)
        path = tmp_path / "a.zip"
        path.write_bytes(head(ONE) + directory + end(1, len(directory), len(head(ONE)), comment))
        assert [member.name for member in contents(path, Limits()).files] == ["train.py"]

    def test_wide_numbers_are_read(self, tmp_path: Path) -> None:
        body, directory = head(ONE), listing(ONE, 0)
        path = tmp_path / "a.zip"
        path.write_bytes(body + directory + wide_end(1, len(directory), len(body), len(body) + len(directory)))
        assert [member.size for member in contents(path, Limits()).files] == [len(ONE.data)]


class TestAnotherLayout:
    @pytest.mark.parametrize("content", [b"", b"PK", b"x" * 100, b"PK\x03\x04" + b"\0" * 200, b"\x1f\x8b" * 40])
    def test_what_has_no_end_record_is_no_archive(self, tmp_path: Path, content: bytes) -> None:
        assert "end record is missing" in refused(tmp_path, content)

    @pytest.mark.parametrize("cut", [1, 10, 21, 22, 40])
    def test_one_that_was_cut_off_is_refused(self, tmp_path: Path, cut: int) -> None:
        assert "ZIP" in refused(tmp_path, archive(ONE)[:-cut])

    def test_nothing_may_stand_before_it(self, tmp_path: Path) -> None:
        assert "put before or behind" in refused(tmp_path, b"#!/bin/sh\n" + archive(ONE))

    def test_nothing_may_follow_it(self, tmp_path: Path) -> None:
        assert "put before or behind" in refused(tmp_path, archive(ONE) + b"more")

    def test_a_gap_before_the_end_record_is_refused(self, tmp_path: Path) -> None:
        body, directory = head(ONE), listing(ONE, 0)
        assert "put before or behind" in refused(
            tmp_path, body + directory + b"gap" + end(1, len(directory), len(body))
        )

    def test_a_part_of_several_is_refused(self, tmp_path: Path) -> None:
        body, directory = head(ONE), listing(ONE, 0)
        assert "one part of several" in refused(tmp_path, body + directory + end(1, len(directory), len(body), disk=1))
        wide = wide_end(1, len(directory), len(body), len(body) + len(directory), disks=2)
        assert "one part of several" in refused(tmp_path, body + directory + wide)

    def test_a_locator_that_points_elsewhere_is_refused(self, tmp_path: Path) -> None:
        body, directory = head(ONE), listing(ONE, 0)
        assert "put before or behind" in refused(tmp_path, body + directory + wide_end(1, len(directory), len(body), 7))

    def test_a_locator_without_its_record_is_refused(self, tmp_path: Path) -> None:
        body, directory = head(ONE), listing(ONE, 0)
        locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, len(body), 1)
        content = body + directory + locator + end(1, len(directory), len(body))
        assert "put before or behind" in refused(tmp_path, content)

    @pytest.mark.parametrize("said", [0, 2, 65535])
    def test_a_false_number_of_entries_is_refused(self, tmp_path: Path, said: int) -> None:
        body, directory = head(ONE), listing(ONE, 0)
        assert "another number" in refused(tmp_path, body + directory + end(said, len(directory), len(body)))

    @pytest.mark.parametrize("place", [0, 28, 30])
    def test_a_directory_that_does_not_parse_is_refused(self, tmp_path: Path, place: int) -> None:
        body, directory = head(ONE), bytearray(listing(ONE, 0))
        directory[place] ^= 0x55
        assert "ZIP" in refused(tmp_path, body + bytes(directory) + end(1, len(directory), len(body)))

    def test_wide_sizes_that_are_announced_and_missing_are_refused(self, tmp_path: Path) -> None:
        lying = Entry("x", size=0xFFFFFFFF, extra=struct.pack("<HH", 1, 0), version=45)
        assert "damaged" in refused(tmp_path, archive(lying))

    def test_a_name_that_is_no_utf8_is_refused(self, tmp_path: Path) -> None:
        assert "damaged" in refused(tmp_path, archive(Entry(b"\xff\xfe.py")))


class TestManyEntries:
    def test_more_than_allowed_are_refused(self, tmp_path: Path) -> None:
        """C77: 400 small files, of which 100 are allowed."""
        path = plain(tmp_path / "a.zip", {f"f{number:04}.txt": b"x" for number in range(400)})
        with pytest.raises(ArchiveTooLarge, match="too many entries") as caught:
            contents(path, Limits(entries=100))
        assert caught.value.limit == 100
        assert len(contents(path, Limits(entries=400)).files) == 400

    def test_a_hundred_thousand_cost_no_memory_whatever_the_end_record_says(self, tmp_path: Path) -> None:
        directory = b"".join(listing(Entry(f"{number:x}", b""), 0) for number in range(100_000))
        path = tmp_path / "a.zip"
        path.write_bytes(directory + end(3, len(directory), 0))
        tracemalloc.start()
        try:
            with pytest.raises(ArchiveTooLarge):
                contents(path, Limits(entries=20_000))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        # Python's zipfile makes some 50 MB of objects of it.
        assert peak < 12_000_000

    def test_a_huge_directory_of_few_entries_is_not_read(self, tmp_path: Path) -> None:
        fat = Entry("x", extra=b"\xca\xfe\xff\x7f" + b"\0" * 0x7FFF)
        with pytest.raises(ArchiveTooLarge, match="directory"):
            contents(_written(tmp_path, archive(*[fat] * 5)), Limits(entries=50))


def _written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "a.zip"
    path.write_bytes(content)
    return path
