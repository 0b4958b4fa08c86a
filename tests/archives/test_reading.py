"""Archives that lie, and how each is refused before anything is unpacked."""

import io
import stat
import zipfile
import zlib
from pathlib import Path

import pytest

from app.archives import (
    ArchiveTooLarge,
    Limits,
    Member,
    NoSuchMember,
    NotAnArchive,
    UnsafeArchive,
    check,
    contents,
    read_member,
)
from tests.archives.making import (
    BLOCKS,
    BZIP2,
    CHARACTERS,
    DEFLATED,
    FILE,
    FOLDER,
    LINK,
    LZMA,
    PIPE,
    SOCKET,
    ZSTANDARD,
    Entry,
    archive,
    end,
    head,
    listing,
    overlapping,
    plain,
    write,
)

GOOD = Entry("good.txt", b"fine")


def refused(tmp_path: Path, *entries: Entry) -> str:
    """Why, by `check`; it must name the last entry."""
    with pytest.raises(UnsafeArchive) as caught:
        check(write(tmp_path / "a.zip", *entries), Limits())
    assert caught.value.entry == entries[-1].raw_name.decode()
    return caught.value.reason


class TestContents:
    def test_files_folders_and_sizes(self, tmp_path: Path) -> None:
        run = Entry("bin/run", b"#!/bin/sh\n", external=0o100755 << 16)
        found = check(
            write(tmp_path / "a.zip", Entry("src/", b"", external=FOLDER), run, Entry("src/a.py", b"ab")), Limits()
        )
        assert found.files == (Member("bin/run", 10, executable=True), Member("src/a.py", 2))
        assert found.folders == ("src", "bin")
        assert found.unpacked_bytes == 12
        assert found.names == {"bin/run", "src/a.py"}

    def test_one_that_is_open_already_is_read_where_it_is(self) -> None:
        assert check(io.BytesIO(archive(GOOD)), Limits()).names == {"good.txt"}

    def test_an_empty_one_has_nothing(self, tmp_path: Path) -> None:
        found = check(write(tmp_path / "a.zip"), Limits())
        assert (found.files, found.folders, found.unpacked_bytes) == ((), (), 0)

    def test_an_archive_in_it_is_a_file_and_is_not_opened(self, tmp_path: Path) -> None:
        inner = archive(Entry("../../x"))
        assert check(write(tmp_path / "a.zip", Entry("data.zip", inner)), Limits()).unpacked_bytes == len(inner)

    def test_what_python_writes_passes(self, tmp_path: Path) -> None:
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
            target.mkdir("package")
            target.writestr("package/ü.py", b"x = 1\n" * 1000)
            with target.open("wide.bin", "w", force_zip64=True) as wide:
                wide.write(b"w")
        assert check(path, Limits()).names == {"package/ü.py", "wide.bin"}

    def test_one_written_to_a_pipe_passes(self, tmp_path: Path) -> None:
        # Sizes follow the files then, since nobody can go back to the heads.
        stream = _Pipe()
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as target:
            target.writestr("a.txt", b"a" * 500)
            target.writestr("b.txt", b"b" * 500)
        (tmp_path / "a.zip").write_bytes(stream.content)
        assert check(tmp_path / "a.zip", Limits()).unpacked_bytes == 1000


class _Pipe(io.RawIOBase):
    def __init__(self) -> None:
        self.content = b""

    def writable(self) -> bool:
        return True

    def write(self, block: object) -> int:
        self.content += bytes(block)  # type: ignore[call-overload] # whatever has bytes
        return len(bytes(block))  # type: ignore[call-overload] # as above


class TestKinds:
    @pytest.mark.parametrize(
        ("external", "reason"),
        [
            (LINK, "is a symbolic link"),
            (PIPE, "is a pipe"),
            (SOCKET, "is a socket"),
            (CHARACTERS, "is a device"),
            (BLOCKS, "is a device"),
            (FOLDER, "is marked as another kind of file than its name says"),
            (0x10, "is marked as another kind of file than its name says"),
            (0o170000 << 16, "is marked as another kind of file than its name says"),
        ],
    )
    def test_only_files_are_files(self, tmp_path: Path, external: int, reason: str) -> None:
        assert refused(tmp_path, GOOD, Entry("x", b"/etc/passwd", external=external)) == reason

    @pytest.mark.parametrize(("external", "reason"), [(FILE, "is marked"), (LINK, "is a symbolic link")])
    def test_only_folders_are_folders(self, tmp_path: Path, external: int, reason: str) -> None:
        assert refused(tmp_path, Entry("x/", b"", external=external)).startswith(reason)

    def test_a_folder_has_no_content(self, tmp_path: Path) -> None:
        assert refused(tmp_path, Entry("x/", b"hidden", external=FOLDER)) == "is a folder with content of its own"

    @pytest.mark.parametrize("external", [0, 0o644 << 16, 0o104755 << 16, 0o102755 << 16, 0x20, FILE | 0x20])
    def test_other_marks_of_a_file_mean_nothing(self, tmp_path: Path, external: int) -> None:
        (member,) = check(write(tmp_path / "a.zip", Entry("x", external=external)), Limits()).files
        assert member.executable == bool(external >> 16 & stat.S_IXUSR)

    @pytest.mark.parametrize("external", [0, 0x10, FOLDER | 0x10, 0o040000 << 16, 0o042777 << 16])
    def test_other_marks_of_a_folder_mean_nothing(self, tmp_path: Path, external: int) -> None:
        assert check(write(tmp_path / "a.zip", Entry("x/", b"", external=external)), Limits()).folders == ("x",)


class TestPacking:
    @pytest.mark.parametrize("method", [1, 6, 9, BZIP2, LZMA, ZSTANDARD, 98, 99])
    def test_only_stored_and_deflated_are_taken(self, tmp_path: Path, method: int) -> None:
        assert f"method {method};" in refused(tmp_path, GOOD, Entry("x", method=method))

    @pytest.mark.parametrize("flags", [0x1, 0x40, 0x2000, 0x1 | 0x800])
    def test_an_encrypted_one_is_refused(self, tmp_path: Path, flags: int) -> None:
        assert refused(tmp_path, GOOD, Entry("x", flags=flags)) == "is encrypted"

    def test_a_patch_is_refused(self, tmp_path: Path) -> None:
        assert "is packed by" in refused(tmp_path, Entry("x", flags=0x20))

    def test_a_name_after_nul_is_seen(self, tmp_path: Path) -> None:
        # zipfile itself ends the name at NUL.
        assert "cannot be seen" in refused(tmp_path, GOOD, Entry("a.py\0/../../x"))

    def test_an_old_name_is_read_as_dos_wrote_it(self, tmp_path: Path) -> None:
        assert check(write(tmp_path / "a.zip", Entry(b"\x81.py", flags=0)), Limits()).names == {"ü.py"}


class TestHeads:
    @pytest.mark.parametrize(
        "entry",
        [
            Entry("x", own_name=b"y"),
            Entry("x", own_name=b"../x"),
            Entry("x", own_method=DEFLATED),
            Entry("x", own_flags=0x801),
        ],
    )
    def test_a_head_that_says_something_else_is_refused(self, tmp_path: Path, entry: Entry) -> None:
        assert "described differently" in refused(tmp_path, GOOD, entry)

    @pytest.mark.parametrize("offset", [1, 45, 10_000, 0xFFFFFFFE])
    def test_a_head_that_is_not_there_is_refused(self, tmp_path: Path, offset: int) -> None:
        with pytest.raises(UnsafeArchive, match=r"not where|overlaps|reaches"):
            check(write(tmp_path / "a.zip", GOOD, Entry("x", offset=offset)), Limits())

    def test_packed_bytes_that_reach_into_the_directory_are_refused(self, tmp_path: Path) -> None:
        assert refused(tmp_path, GOOD, Entry("x", packed_size=20, size=20)) == "reaches into the directory"

    def test_two_files_in_one_place_are_refused(self, tmp_path: Path) -> None:
        """A bomb of overlapping entries: 1000 files of 100 kB from one of 130 bytes."""
        path = overlapping(tmp_path / "a.zip", 1000, 100_000)
        assert path.stat().st_size < 60_000
        with pytest.raises(UnsafeArchive, match=r"overlaps|described differently"):
            check(path, Limits(ratio=10_000))

    @pytest.mark.parametrize(
        ("before", "between"), [(b"#!/bin/sh\n", b""), (b"", b"hidden"), (b"", b"0123456789abcdef")]
    )
    def test_bytes_of_no_file_are_refused(self, tmp_path: Path, before: bytes, between: bytes) -> None:
        """What is a program, or has one in it, for another reader; its own numbers all agree."""
        second = Entry("second.py")
        body = before + head(GOOD) + between
        directory = listing(GOOD, len(before)) + listing(second, len(body))
        body += head(second)
        path = tmp_path / "a.zip"
        path.write_bytes(body + directory + end(2, len(directory), len(body)))
        with pytest.raises(UnsafeArchive, match="stands behind bytes that belong to no file"):
            check(path, Limits())

    @pytest.mark.parametrize("entries", [(), (GOOD,)])
    def test_nor_before_the_directory(self, tmp_path: Path, entries: tuple[Entry, ...]) -> None:
        body, directory = b"".join(map(head, entries)) + b"hidden", b"".join(listing(entry, 0) for entry in entries)
        path = tmp_path / "a.zip"
        path.write_bytes(body + directory + end(len(entries), len(directory), len(body)))
        with pytest.raises(NotAnArchive, match="something stands between its files and its directory"):
            check(path, Limits())

    def test_a_file_inside_another_is_refused(self, tmp_path: Path) -> None:
        inner = Entry("inner", b"i" * 10)
        outer = Entry("outer", archive(inner))
        # The head of the first is 30 bytes and its name 5.
        path = write(tmp_path / "a.zip", outer, Entry("inner", inner.data, offset=35))
        with pytest.raises(UnsafeArchive, match="overlaps"):
            check(path, Limits())


class TestSizes:
    def test_a_small_archive_of_much_is_refused_unread(self, tmp_path: Path) -> None:
        """C77: 45 MB of zeros in 44 kB, of which 10 MB are allowed."""
        path = plain(tmp_path / "a.zip", {"zeros.bin": bytes(45_000_000)})
        for look in (contents, check):
            with pytest.raises(ArchiveTooLarge) as caught:
                look(path, Limits(total_bytes=10_000_000))
            assert caught.value.limit == 10_000_000

    def test_each_file_has_a_limit_of_its_own(self, tmp_path: Path) -> None:
        path = plain(tmp_path / "a.zip", {"a": b"x" * 11, "b": b"y"})
        with pytest.raises(ArchiveTooLarge, match="11 bytes in 'a'"):
            contents(path, Limits(file_bytes=10))
        assert contents(path, Limits(file_bytes=11, total_bytes=12)).unpacked_bytes == 12

    def test_many_files_count_together(self, tmp_path: Path) -> None:
        path = plain(tmp_path / "a.zip", {f"{number}": b"x" * 100 for number in range(10)})
        with pytest.raises(ArchiveTooLarge, match="too many bytes"):
            contents(path, Limits(total_bytes=999))

    def test_a_ratio_that_no_code_has_is_refused_once_it_matters(self, tmp_path: Path) -> None:
        path = plain(tmp_path / "a.zip", {"zeros": bytes(2_000_000)})
        with pytest.raises(ArchiveTooLarge, match="times its size") as caught:
            contents(path, Limits(ratio=100, small_bytes=1_000_000))
        assert caught.value.limit == 100
        assert contents(path, Limits(ratio=100, small_bytes=2_000_000)).unpacked_bytes == 2_000_000
        assert contents(path, Limits(ratio=2000, small_bytes=0)).unpacked_bytes == 2_000_000

    @pytest.mark.parametrize("size", [0, 1, 99_999])
    def test_a_size_below_the_truth_is_no_way_round(self, tmp_path: Path, size: int) -> None:
        lying = Entry("x", bytes(100_000), DEFLATED, size=size)
        with pytest.raises(NotAnArchive, match="'x' in it is damaged"):
            check(write(tmp_path / "a.zip", GOOD, lying), Limits(total_bytes=size + 10))

    def test_nor_with_a_checksum_that_fits_the_lie(self, tmp_path: Path) -> None:
        lying = Entry("x", bytes(100_000), DEFLATED, size=10, crc=zlib.crc32(bytes(10)))
        path = write(tmp_path / "a.zip", lying)
        assert check(path, Limits(total_bytes=10)).unpacked_bytes == 10
        assert read_member(path, "x", 10) == bytes(10)

    @pytest.mark.parametrize("size", [100_001, 2**31])
    def test_a_size_above_the_truth_is_damage(self, tmp_path: Path, size: int) -> None:
        lying = Entry("x", bytes(100_000), DEFLATED, size=size)
        with pytest.raises(NotAnArchive, match="'x' in it is damaged"):
            check(write(tmp_path / "a.zip", lying), Limits(total_bytes=2**32, file_bytes=2**32, ratio=2**40))

    @pytest.mark.parametrize(
        "entry",
        [
            Entry("x", crc=1),
            Entry("x", b"not deflated", DEFLATED, own_method=DEFLATED, packed_size=3),
        ],
    )
    def test_damage_is_found_before_an_archive_is_accepted(self, tmp_path: Path, entry: Entry) -> None:
        path = write(tmp_path / "a.zip", GOOD, entry)
        assert len(contents(path, Limits()).files) == 2
        with pytest.raises(NotAnArchive, match=r"damaged|something stands between"):
            check(path, Limits())


class TestOneMember:
    def test_its_bytes(self, tmp_path: Path) -> None:
        path = plain(tmp_path / "a.zip", {"a/requirements.txt": b"rich\n"})
        assert read_member(path, "a/requirements.txt", 5) == b"rich\n"
        with path.open("rb") as file:
            assert read_member(file, "a/requirements.txt", 5) == b"rich\n"

    def test_one_that_is_too_large_is_not_read(self, tmp_path: Path) -> None:
        with pytest.raises(ArchiveTooLarge, match="5 bytes in 'r'"):
            read_member(plain(tmp_path / "a.zip", {"r": b"rich\n"}), "r", 4)

    @pytest.mark.parametrize("name", ["x", "", "a", "a/", "../r", "R"])
    def test_one_that_is_not_there_is_named(self, tmp_path: Path, name: str) -> None:
        path = write(tmp_path / "a.zip", Entry("r"), Entry("a/", b"", external=FOLDER), Entry("a/b"))
        with pytest.raises(NoSuchMember) as caught:
            read_member(path, name, 10)
        assert caught.value.name == name

    def test_a_link_is_none(self, tmp_path: Path) -> None:
        with pytest.raises(UnsafeArchive):
            read_member(write(tmp_path / "a.zip", Entry("x", external=LINK)), "x", 10)

    def test_what_is_no_archive_has_none(self, tmp_path: Path) -> None:
        (tmp_path / "a.zip").write_bytes(b"text")
        with pytest.raises(NotAnArchive):
            read_member(tmp_path / "a.zip", "x", 10)


class TestSentences:
    def test_a_strangers_name_is_shown_short_and_without_its_escapes(self, tmp_path: Path) -> None:
        with pytest.raises(UnsafeArchive) as caught:
            check(write(tmp_path / "a.zip", Entry("\x1b[31m" + "n" * 1000)), Limits())
        assert "\x1b" not in str(caught.value)
        assert len(str(caught.value)) < 300
