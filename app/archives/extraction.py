"""Unpacking an archive into a folder of its own, as whoever calls this: no rights are needed but to that folder's."""

import os
import shutil
from pathlib import Path
from typing import Final

from app.archives.contents import Contents, Limits
from app.archives.errors import ArchiveTooLarge
from app.archives.reading import Opened, Source, blocks, check_heads, opened

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def extract(source: Source, folder: Path, limits: Limits) -> Contents:
    """Unpack into `folder`, which must not exist, and does not after an error; its parent must.

    Everything that can be known without unpacking is checked before the first write. Files are regular files of the
    caller, executable when they were so for their owner, never setuid; the umask decides about the rest. Times and
    owners are not kept.

    Raises:
        NotAnArchive, UnsafeArchive, ArchiveTooLarge: it cannot be unpacked.
        FileExistsError: `folder` is there.
        OSError: the source cannot be read, or the folder not be made or written to: no space is left, for example.
    """
    with opened(source, limits) as found:
        check_heads(found)
        folder.mkdir()
        try:
            _write(found, folder, limits)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return found.contents


def _write(found: Opened, folder: Path, limits: Limits) -> None:
    root = os.open(folder, _FOLDER)
    try:
        for name in found.contents.folders:
            os.mkdir(name, dir_fd=root)
        written = 0
        for entry, member in zip(found.entries, found.contents.files, strict=True):
            descriptor = os.open(member.name, _NEW, 0o777 if member.executable else 0o666, dir_fd=root)
            with os.fdopen(descriptor, "wb") as file:
                for block in blocks(found.archive, entry, member):
                    written += len(block)
                    if written > limits.total_bytes:
                        raise ArchiveTooLarge("unpacks to too many bytes", limits.total_bytes)
                    file.write(block)
    finally:
        os.close(root)
