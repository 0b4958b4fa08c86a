"""Looks at a folder that a script writes to, without ever following a link or waiting for a pipe.

The script may change anything at any time. So folders and files are opened from their parent's descriptor, with
O_NOFOLLOW, and a file counts only for what the open descriptor says that it is.
"""

import contextlib
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

DEEPEST: Final = 40
_OPEN_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_OPEN_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK


class TooMany(Exception):
    """There are more files than may be looked at; `name` is the entry in which the limit was reached."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Changed(Exception):
    """A file is not, or not any more, what it was when it was looked at."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class File(NamedTuple):
    """A regular file: its path below the folder, joined by `/`, and what tells one content from another."""

    name: str
    size: int
    modified_ns: int
    inode: int
    executable: bool


@dataclass(frozen=True)
class Entry:
    """What lies at the top of the folder under one name. `skipped`: links, pipes, devices, and what lies too deep."""

    name: str
    is_folder: bool
    files: tuple[File, ...]
    skipped: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def scan(folder: Path, most: int, wanted: Callable[[str], bool] = lambda _name: True) -> dict[str, Entry]:
    """All entries at the top with `wanted` names, and every file below them.

    Raises:
        TooMany: there are more than `most` files and folders.
        OSError: the folder is not there, or is no folder but a link, for example.
    """
    room = [most]
    root = os.open(folder, _OPEN_FOLDER)
    try:
        return {name: _entry(root, name, room) for name in _names(root, room) if wanted(name)}
    finally:
        os.close(root)


@contextlib.contextmanager
def opened(folder: Path, file: File) -> Iterator[int]:
    """A descriptor of exactly the file that was looked at.

    Raises:
        Changed: it is another one now, or was changed while it was open.
    """
    descriptor = _open_inside(folder, file.name)
    try:
        if _facts(file.name, os.fstat(descriptor)) != file:
            raise Changed(file.name)
        yield descriptor
        if _facts(file.name, os.fstat(descriptor)) != file:
            raise Changed(file.name)
    finally:
        os.close(descriptor)


def _open_inside(folder: Path, name: str) -> int:
    *folders, last = name.split("/")
    try:
        current = os.open(folder, _OPEN_FOLDER)
        for part in folders:
            try:
                inner = os.open(part, _OPEN_FOLDER, dir_fd=current)
            finally:
                os.close(current)
            current = inner
        try:
            return os.open(last, _OPEN_FILE, dir_fd=current)
        finally:
            os.close(current)
    except OSError as error:
        raise Changed(name) from error


def _names(descriptor: int, room: list[int]) -> list[str]:
    names: list[str] = []
    with os.scandir(descriptor) as found:
        for entry in found:
            room[0] -= 1
            if room[0] < 0:
                raise TooMany(entry.name)
            names.append(entry.name)
    return sorted(names)


def _entry(root: int, name: str, room: list[int]) -> Entry:
    files: list[File] = []
    skipped: list[str] = []
    try:
        _walk(root, name, name, files, skipped, room, 1)
        is_folder = stat.S_ISDIR(os.stat(name, dir_fd=root, follow_symlinks=False).st_mode)
    except TooMany:
        raise TooMany(name) from None
    except OSError:  # it went away meanwhile, and the next look sees what is there then
        return Entry(name, is_folder=False, files=(), skipped=())
    return Entry(name, is_folder, tuple(files), tuple(skipped))


def _walk(
    parent: int, part: str, path: str, files: list[File], skipped: list[str], room: list[int], depth: int
) -> None:
    facts = os.stat(part, dir_fd=parent, follow_symlinks=False)
    if depth > DEEPEST:
        skipped.append(path)
    elif stat.S_ISREG(facts.st_mode):
        files.append(_facts(path, facts))
    elif stat.S_ISDIR(facts.st_mode):
        inside = os.open(part, _OPEN_FOLDER, dir_fd=parent)
        try:
            for name in _names(inside, room):
                with contextlib.suppress(FileNotFoundError):
                    _walk(inside, name, f"{path}/{name}", files, skipped, room, depth + 1)
        finally:
            os.close(inside)
    else:
        skipped.append(path)


def _facts(name: str, facts: os.stat_result) -> File:
    regular = stat.S_ISREG(facts.st_mode)
    size = facts.st_size if regular else -1
    return File(name, size, facts.st_mtime_ns, facts.st_ino, bool(facts.st_mode & stat.S_IXUSR))
