"""Looking into an archive. Python's zipfile reads it, once its directory is bounded; what it says is judged here."""

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from app.archives.contents import Contents, Limits, Member
from app.archives.directory import check_directory
from app.archives.errors import ArchiveTooLarge, NoSuchMember, NotAnArchive, UnsafeArchive, shown
from app.archives.names import Tree, check_name

Source = Path | BinaryIO
"""A file by its path, or open for reading and seeking."""

BLOCK: Final = 256 * 1024
BROKEN: Final = (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, struct.error, ValueError, OverflowError)
"""What zipfile raises over a damaged archive."""

_ENCRYPTED: Final = 0x1 | 0x40 | 0x2000
_PATCH: Final = 0x20
_SIZES_BEHIND: Final = 0x8
_LENGTHS_OF_SIZES: Final = (12, 16, 20, 24)
"""Of the sizes behind a file that was packed as a stream: narrow or wide numbers, each with a mark or without."""
_IN_UTF8: Final = 0x800
_FOLDER_OF_DOS: Final = 0x10
_HEAD: Final = struct.Struct("<4s5H3L2H")
_HEAD_MARK: Final = b"PK\x03\x04"
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_KINDS: Final = {
    stat.S_IFLNK: "is a symbolic link",
    stat.S_IFIFO: "is a pipe",
    stat.S_IFSOCK: "is a socket",
    stat.S_IFCHR: "is a device",
    stat.S_IFBLK: "is a device",
}


@dataclass(frozen=True)
class Opened:
    """An archive whose directory passed; `entries` are its files, as `contents.files` are and in the same order."""

    archive: zipfile.ZipFile
    file: BinaryIO
    directory_at: int
    entries: tuple[zipfile.ZipInfo, ...]
    contents: Contents


def contents(source: Source, limits: Limits) -> Contents:
    """What the archive says that it has, judged by its directory alone: no file in it is read.

    Raises:
        NotAnArchive, UnsafeArchive, ArchiveTooLarge: it cannot be unpacked.
        OSError: the source cannot be read.
    """
    with opened(source, limits) as found:
        return found.contents


def check(source: Source, limits: Limits) -> Contents:
    """`contents`, with every file read through once: an archive that passes can be unpacked.

    Raises as `contents`.
    """
    with opened(source, limits) as found:
        check_heads(found)
        for entry, member in zip(found.entries, found.contents.files, strict=True):
            for _ in blocks(found.archive, entry, member):
                pass
        return found.contents


def read_member(source: Source, name: str, limit: int) -> bytes:
    """The bytes of one file of an archive that was checked before.

    Raises:
        NoSuchMember: there is no file of that name.
        ArchiveTooLarge: it has more than `limit` bytes.
        NotAnArchive, UnsafeArchive: it is not one that was checked.
        OSError: the source cannot be read.
    """
    with _file(source) as file, _damage("its directory is damaged."), zipfile.ZipFile(file) as archive:
        try:
            entry = archive.getinfo(name)
        except KeyError:
            raise NoSuchMember(name) from None
        if entry.file_size > limit:
            raise ArchiveTooLarge(f"has {entry.file_size} bytes in {shown(name)}", limit)
        member = judged(entry)
        if member is None:
            raise NoSuchMember(name)
        return b"".join(blocks(archive, entry, member))


@contextmanager
def opened(source: Source, limits: Limits) -> Iterator[Opened]:
    """The archive, its directory judged as `contents` does."""
    with _file(source) as file:
        directory_at, size = check_directory(file, limits)
        with _damage("its directory is damaged."):
            archive = zipfile.ZipFile(file)
        with archive:
            entries, found = _contents(archive, limits)
            total = found.unpacked_bytes
            if total > limits.small_bytes and total > limits.ratio * size:
                raise ArchiveTooLarge(f"unpacks to {total} bytes, {total // size} times its size", limits.ratio)
            yield Opened(archive, file, directory_at, entries, found)


def _contents(archive: zipfile.ZipFile, limits: Limits) -> tuple[tuple[zipfile.ZipInfo, ...], Contents]:
    tree = Tree(limits.entries)
    entries: list[zipfile.ZipInfo] = []
    files: list[Member] = []
    total = 0
    for entry in archive.infolist():
        member = judged(entry)
        tree.add(entry.orig_filename)
        if member is None:
            continue
        total += member.size
        if member.size > limits.file_bytes:
            raise ArchiveTooLarge(f"has {member.size} bytes in {shown(member.name)}", limits.file_bytes)
        if total > limits.total_bytes:
            raise ArchiveTooLarge("unpacks to too many bytes", limits.total_bytes)
        entries.append(entry)
        files.append(member)
    return tuple(entries), Contents(tuple(files), tree.folders, total)


def judged(entry: zipfile.ZipInfo) -> Member | None:
    """An entry's file, None for a folder. zipfile cuts a name at NUL, hence its original one.

    Raises:
        UnsafeArchive: it is neither, or is not taken.
    """
    name = entry.orig_filename
    check_name(name)
    mode = entry.external_attr >> 16
    kind, is_folder = stat.S_IFMT(mode), name.endswith("/")
    if kind in _KINDS:
        raise UnsafeArchive(name, _KINDS[kind])
    if kind not in (0, stat.S_IFDIR if is_folder else stat.S_IFREG) or (
        entry.external_attr & _FOLDER_OF_DOS and not is_folder
    ):
        raise UnsafeArchive(name, "is marked as another kind of file than its name says")
    if is_folder and entry.file_size:
        raise UnsafeArchive(name, "is a folder with content of its own")
    if entry.flag_bits & _ENCRYPTED:
        raise UnsafeArchive(name, "is encrypted")
    if entry.compress_type not in _METHODS or entry.flag_bits & _PATCH:
        raise UnsafeArchive(name, f"is packed by method {entry.compress_type}; only stored and deflated are taken")
    return None if is_folder else Member(name, entry.file_size, bool(mode & stat.S_IXUSR))


def check_heads(found: Opened) -> None:
    """Each file's own head must agree with the directory, and every byte before that belongs to one file.

    Shared bytes are how a small archive becomes a large one without any of its files being packed too well; those of
    nobody are how it is another kind of file too, a program for example.

    Raises:
        NotAnArchive, UnsafeArchive: they do not.
    """
    free_from = 0
    gaps: tuple[int, ...] = (0,)
    for entry in sorted(found.archive.infolist(), key=lambda entry: entry.header_offset):
        name = entry.orig_filename
        if entry.header_offset < free_from:
            raise UnsafeArchive(name, "overlaps with another one")
        found.file.seek(entry.header_offset)
        head = found.file.read(_HEAD.size)
        if len(head) < _HEAD.size or head[:4] != _HEAD_MARK:
            raise UnsafeArchive(name, "is not where the directory says")
        if entry.header_offset - free_from not in gaps:
            raise UnsafeArchive(name, "stands behind bytes that belong to no file")
        _, _, flags, method, *_, name_length, extra_length = _HEAD.unpack(head)
        encoding = "utf-8" if entry.flag_bits & _IN_UTF8 else "cp437"
        same = found.file.read(name_length).decode(encoding, "replace") == name
        if not same or method != entry.compress_type or flags & _ENCRYPTED:
            raise UnsafeArchive(name, "is described differently by the directory and by its own head")
        free_from = entry.header_offset + _HEAD.size + name_length + extra_length + entry.compress_size
        if free_from > found.directory_at:
            raise UnsafeArchive(name, "reaches into the directory")
        gaps = (0, *_LENGTHS_OF_SIZES) if flags & _SIZES_BEHIND else (0,)
    if found.directory_at - free_from not in gaps:
        raise NotAnArchive("something stands between its files and its directory.")


def blocks(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, member: Member) -> Iterator[bytes]:
    """A file's bytes, some at a time. Never more than the directory says, whatever the packed bytes hold.

    Raises:
        NotAnArchive: they are damaged, or fewer.
    """
    done = 0
    damaged = f"{shown(member.name)} in it is damaged."
    with _damage(damaged), archive.open(entry) as file:
        while block := file.read(BLOCK):
            done += len(block)
            yield block
    if done != member.size:
        raise NotAnArchive(damaged)


@contextmanager
def _file(source: Source) -> Iterator[BinaryIO]:
    if not isinstance(source, Path):
        yield source
        return
    with source.open("rb") as file:
        yield file


@contextmanager
def _damage(sentence: str) -> Iterator[None]:
    try:
        yield
    except BROKEN as error:
        raise NotAnArchive(sentence) from error
