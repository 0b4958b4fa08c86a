"""Packs files that a script wrote into a ZIP, stored and not compressed: weights do not shrink, and time is short."""

import hashlib
import os
import time
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, cast

from app.archives.names import Tree, check_name
from app.errors import TrainshedError
from workers.scripts.tree import File, opened

FILES_NAME: Final = "files.zip"
"""The file of a checkpoint that holds the script's own."""
_BLOCK: Final = 1024 * 1024
_LARGE: Final = 1024**3
_MOST_NAMES: Final = 1_000_000
_FIRST_YEAR: Final = 1980
_MODES: Final = {True: 0o100755, False: 0o100644}


@dataclass(frozen=True)
class Packed:
    """The archive: its size and the SHA-256 of its bytes, in hex."""

    size_bytes: int
    sha256: str


def packable(files: Iterable[tuple[str, File]]) -> tuple[list[tuple[str, File]], list[str]]:
    """The files whose names an archive can hold, and the names of the others.

    A file system knows names that no archive should: with a line break, or that differ in capitals only.
    """
    tree = Tree(_MOST_NAMES)
    fit: list[tuple[str, File]] = []
    unfit: list[str] = []
    for name, file in files:
        try:
            check_name(name)
            tree.add(name)
        except TrainshedError:
            unfit.append(name)
        else:
            fit.append((name, file))
    return fit, unfit


class _Hashing:
    """A file that is only ever appended to, and hashed on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.digest = hashlib.sha256()
        self.size = 0

    def write(self, data: Any) -> int:  # noqa: ANN401 - bytes or a memoryview, as zipfile likes
        self.digest.update(data)
        self.size += len(data)
        return self._file.write(data)

    def flush(self) -> None:
        self._file.flush()


def pack(folder: Path, files: Iterable[tuple[str, File]], destination: Path, comment: bytes = b"") -> Packed:
    """Pack files of a folder under the given names into a new archive; on an error nothing of it is left.

    Each keeps the time of its last change to the nanosecond, in its comment.

    Raises:
        Changed: a file is not what it was when it was looked at.
        OSError: the disk is full.
    """
    try:
        with destination.open("xb") as raw:
            stream = _Hashing(raw)
            with zipfile.ZipFile(cast("IO[bytes]", stream), "w", zipfile.ZIP_STORED) as archive:
                for name, file in files:
                    _add(archive, folder, name, file)
                archive.comment = comment
        return Packed(stream.size, stream.digest.hexdigest())
    except BaseException:
        destination.unlink(missing_ok=True)
        raise


def _add(archive: zipfile.ZipFile, folder: Path, name: str, file: File) -> None:
    info = zipfile.ZipInfo(name, _date(file.modified_ns))
    info.comment = str(file.modified_ns).encode()
    info.create_system = 3  # Unix, whose modes these are
    info.external_attr = _MODES[file.executable] << 16
    info.file_size = file.size
    with opened(folder, file) as source, archive.open(info, "w", force_zip64=file.size > _LARGE) as target:
        left = file.size
        while left > 0 and (block := os.read(source, min(_BLOCK, left))):
            target.write(block)
            left -= len(block)


def _date(modified_ns: int) -> tuple[int, int, int, int, int, int]:
    """As ZIP keeps it, from 1980 to 2107."""
    try:
        year, *rest = time.gmtime(modified_ns // 1_000_000_000)[:6]
    except (OverflowError, ValueError, OSError):
        return (_FIRST_YEAR, 1, 1, 0, 0, 0)
    if not _FIRST_YEAR <= year < _FIRST_YEAR + 128:
        return (_FIRST_YEAR, 1, 1, 0, 0, 0)
    month, day, hour, minute, second = rest
    return (year, month, day, hour, minute, second)
