"""Opening a file where it lies: below a folder that others may write to, and never outside that folder.

Links are followed as long as they stay below the folder; what they lead to is then opened folder by folder from its
parent's descriptor, without following any, so that nobody can put another file in its place between look and use.
Everything afterwards reads the open file, whatever happens to its name.
"""

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final

from app.errors import TrainshedError

_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Without NONBLOCK, opening a pipe that somebody put in the place of a file would wait for ever.
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_REFUSED: Final = (errno.EACCES, errno.EPERM)
_ABSENT: Final = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
# A file system may keep years that no date here can have, or that have not four digits.
_EARLIEST: Final = datetime(1000, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)


class UnusableFile(TrainshedError):
    """A file that should be read in place is not there, may not be read, or is not what it was."""

    code: ClassVar[str] = "invalid_data"
    pointer: ClassVar[str] = "/uri"
    suggestion: str | None = None

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(f"'{uri}' {reason}")
        self.uri = uri
        self.reason = reason


class RootUnavailable(TrainshedError, OSError):
    """The folder itself cannot be read now: its disk failed, or is not mounted. That says nothing of the file."""

    code: ClassVar[str] = "storage_unavailable"

    def __init__(self, uri: str, reason: str) -> None:
        super().__init__(f"The data root of '{uri}' cannot be read now: {reason}.")


@dataclass(frozen=True)
class OpenFile:
    """An open regular file; `path` names it for this process, and for a child that is given `descriptor`."""

    uri: str
    descriptor: int
    facts: os.stat_result

    @property
    def path(self) -> Path:
        return Path(f"/proc/self/fd/{self.descriptor}")

    @property
    def size_bytes(self) -> int:
        return self.facts.st_size

    @property
    def modified_at(self) -> datetime:
        """When it was last written, as far as a date can say it."""
        try:
            return max(_EARLIEST, datetime.fromtimestamp(self.facts.st_mtime_ns // 1000 / 1_000_000, UTC))
        except (ValueError, OverflowError):
            return _LATEST if self.facts.st_mtime_ns > 0 else _EARLIEST

    def digest(self) -> str:
        """SHA-256 of the content, in hex."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def require(self, digest: str) -> None:
        """Check that the content is still the one with this digest.

        Raises:
            UnusableFile: it is another one.
        """
        if self.digest() != digest:
            raise UnusableFile(
                self.uri, "is not the file that was registered: its SHA-256 is another one. Register it again."
            )

    def require_unchanged(self) -> None:
        """Check that nobody wrote to the file since it was opened.

        Raises:
            UnusableFile: somebody did; what was read may be a mixture.
        """
        now = os.fstat(self.descriptor)
        then = self.facts
        # Not the time of the inode: it also changes when another file takes over the name, which is no harm here.
        if (now.st_size, now.st_mtime_ns) != (then.st_size, then.st_mtime_ns):
            raise UnusableFile(self.uri, "was changed while it was read. Try again when it is complete.")


@contextlib.contextmanager
def open_below(root: Path, relative: str, uri: str) -> Iterator[OpenFile]:
    """The regular file at `relative` below `root`, as long as the block runs; `uri` is what errors call it.

    Raises:
        UnusableFile: there is none, it may not be read, or the way to it leads out of `root`.
        RootUnavailable: the file system failed, or `root` is missing or empty, as a place where nothing is mounted is.
    """
    try:
        descriptor = _descend(*_real_parts(root, relative, uri))
    except OSError as error:
        # The system's error has the path of the host, which a user of an address is not to see.
        raise _explained(error, root, uri) from None
    try:
        facts = os.fstat(descriptor)
        if not stat.S_ISREG(facts.st_mode):
            raise UnusableFile(uri, "is not a regular file; name a file with a table.")
        yield OpenFile(uri, descriptor, facts)
    finally:
        os.close(descriptor)


def _real_parts(root: Path, relative: str, uri: str) -> tuple[Path, Sequence[str]]:
    real_root = root.resolve(strict=True)
    # Judged before anybody asks whether it is there: else a link out would tell which files the host has.
    if not Path(os.path.realpath(real_root / relative)).is_relative_to(real_root):
        raise _leads_out(uri)
    # realpath, since Path.resolve reports a loop of links in another way in each version of Python.
    place = Path(os.path.realpath(real_root / relative, strict=True))
    if not place.is_relative_to(real_root):
        raise _leads_out(uri)
    return real_root, place.relative_to(real_root).parts


def _leads_out(uri: str) -> UnusableFile:
    return UnusableFile(uri, "leads out of its data root through a link; only what lies inside is read.")


def _descend(root: Path, parts: Sequence[str]) -> int:
    folder = os.open(root, _FOLDER)
    try:
        for part in parts[:-1]:
            below = os.open(part, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = below
        return os.open(parts[-1], _READ, dir_fd=folder) if parts else os.dup(folder)
    finally:
        os.close(folder)


def _explained(error: OSError, root: Path, uri: str) -> TrainshedError:
    if error.errno in _REFUSED:
        return UnusableFile(uri, f"may not be read by the user with uid {os.geteuid()}; let others read it.")
    if error.errno in _ABSENT:
        missing = _what_is_missing(root)
        return UnusableFile(uri, "is not there.") if missing is None else RootUnavailable(uri, missing)
    if error.errno == errno.ELOOP:
        return UnusableFile(uri, "is reached through links that go in circles.")
    return RootUnavailable(uri, error.strerror or "its file system failed")


def _what_is_missing(root: Path) -> str | None:
    """Without this, every file would look deleted while a disk is not mounted."""
    try:
        with os.scandir(root) as entries:
            return None if next(entries, None) else "its folder is empty; perhaps nothing is mounted there"
    except PermissionError:  # it may be entered, and not listed: that it is there is all that this can tell
        return None
    except OSError as error:
        return f"its folder is gone ({error.strerror})"
