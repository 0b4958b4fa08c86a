"""Where files live that outlast a process: uploaded data and the files of finished jobs.

Keys come from `app.storage.keys`. `open_storage` turns TRAINSHED_STORAGE_URL into an implementation.
"""

from pathlib import Path
from typing import ClassVar, Final, Protocol

from app.errors import TrainshedError
from app.storage.local import LocalStorage, MissingObject

__all__ = ["LocalStorage", "MissingObject", "Storage", "UnsupportedStorage", "open_storage"]

_FILE: Final = "file://"


class Storage(Protocol):
    """Six operations on whole files, named by key.

    Whole files, because that is what every object store can do: nothing is appended, renamed or locked, and a key that
    was written is not written again with other bytes. Between a file and the storage only paths cross, so a large file
    is never in memory and an implementation may copy as it likes. It knows nothing of jobs, rows or names that people
    chose: whether a file is wanted is decided by the database alone, so a row is committed after its `put` and before
    its `delete`, and a crash between the two leaves a file that nobody names, never a row without its file.

    Every method may raise OSError when the storage itself fails (full, gone, forbidden).
    """

    def put(self, key: str, source: Path) -> None:
        """Store a copy of the regular file `source`; a reader sees all of it or nothing.

        Once this returns, the copy survives a power cut.

        Raises:
            InvalidKey: `key` is not a key.
            OSError: `source` is not a regular file (a link is not followed), or the storage failed; nothing was stored.
        """
        ...

    def get(self, key: str, destination: Path) -> None:
        """Copy a stored file to `destination`, which must not exist and does not after an error.

        Raises:
            MissingObject: there is none.
        """
        ...

    def exists(self, key: str) -> bool: ...

    def list(self, prefix: str = "") -> list[str]:
        """The keys below `prefix` (whole segments; empty = all), sorted. What is half written is not among them."""
        ...

    def delete(self, key: str) -> None:
        """Remove a stored file; one that is not there is no error, so that a crashed deletion can be repeated."""
        ...

    def local_path(self, key: str) -> Path | None:
        """Where the file can be read on this host, or None when the storage is elsewhere. Not to be written to.

        Raises:
            MissingObject: there is none.
        """
        ...


class UnsupportedStorage(TrainshedError):
    """A fault of the settings; the process must not start."""

    code: ClassVar[str] = "invalid_settings"

    def __init__(self, url: str) -> None:
        scheme = url.partition("://")[0][:40]
        super().__init__(
            f"TRAINSHED_STORAGE_URL must be file:// and an absolute path, not '{scheme}'; "
            "for example file:///var/lib/trainshed/storage"
        )


def open_storage(url: str) -> Storage:
    """The storage behind a URL. What follows `file://` is the path as it stands, without percent-encoding.

    Raises:
        UnsupportedStorage: another scheme, or a path that is not absolute.
    """
    path = url.removeprefix(_FILE)
    if not url.startswith(f"{_FILE}/") or "\0" in path:
        raise UnsupportedStorage(url)
    return LocalStorage(Path(path))
