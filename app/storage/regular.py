"""Opening the regular files that go into a storage, and making those that come out of it."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Final

# Without NONBLOCK, opening a pipe that somebody put in the place of a file would wait for ever.
READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
CREATE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class NotRegular(OSError):
    """A folder, a pipe or a device stands where a file should."""


def open_source(source: Path) -> BinaryIO:
    """A regular file, open for reading; a link is not followed.

    Raises:
        NotRegular: it is something else.
        OSError: it cannot be opened.
    """
    return regular(os.open(source, READ), str(source))


def regular(descriptor: int, name: str) -> BinaryIO:
    """The open file, if it is a regular one; folders, pipes and devices are closed again, and refused."""
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NotRegular(errno.EINVAL, "not a regular file", name)
    return os.fdopen(descriptor, "rb")


@contextlib.contextmanager
def new_file(destination: Path) -> Iterator[BinaryIO]:
    """A new file for this user alone, to be written; after an error it is gone again.

    Raises:
        FileExistsError: something is there already.
    """
    descriptor = os.open(destination, CREATE, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as copy:
            yield copy
    except BaseException:
        destination.unlink(missing_ok=True)
        raise
