"""Making an archive: the same files under the same names give the same bytes, whenever and by whomever it is made."""

import os
import stat
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, BinaryIO, Final

from app.archives.errors import UnsafeArchive, shown
from app.archives.names import Tree, check_name
from app.archives.reading import BLOCK

# The earliest time that an archive can tell.
_MADE_AT: Final = (1980, 1, 1, 0, 0, 0)
_UNIX: Final = 3
# A member that may pass this says so beforehand, since nobody goes back to its head.
_LARGE: Final = 1 << 31
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


def pack(entries: Iterable[tuple[str, Path]], destination: Path, *, compress: bool = True) -> int:
    """Write regular files under their names into the new archive `destination`; answers its size in bytes.

    Of a file only what it has when it is opened is taken, so that one that is being written to comes to an end.

    Raises:
        UnsafeArchive: a name, or two of them together, could not be unpacked again.
        OSError: a file is not a regular one (a link is not followed), or cannot be read or written; `destination`
            exists. It is removed again.
    """
    files = sorted(entries, key=lambda pair: pair[0])
    tree = Tree(sys.maxsize)
    for name, _ in files:
        if name.endswith("/"):
            raise UnsafeArchive(name, "is a folder; only files are packed")
        check_name(name)
        tree.add(name)
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with destination.open("xb") as target:
        try:
            with zipfile.ZipFile(target, "w", method) as archive:
                for name, path in files:
                    _add(archive, name, path, method)
        except BaseException:
            destination.unlink(missing_ok=True)
            raise
    return destination.stat().st_size


def _add(archive: zipfile.ZipFile, name: str, path: Path, method: int) -> None:
    with os.fdopen(os.open(path, _READ), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{shown(name)} is not a regular file")
        info = zipfile.ZipInfo(name, _MADE_AT)
        info.create_system = _UNIX
        info.compress_type = method
        info.external_attr = (stat.S_IFREG | (0o755 if status.st_mode & stat.S_IXUSR else 0o644)) << 16
        with archive.open(info, "w", force_zip64=status.st_size >= _LARGE) as entry:
            _copy(file, entry, status.st_size)


def _copy(source: BinaryIO, target: IO[bytes], size: int) -> None:
    while size and (block := source.read(min(size, BLOCK))):
        target.write(block)
        size -= len(block)
