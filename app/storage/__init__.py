"""Where files live that outlast a process: uploaded data and the files of finished jobs.

Keys come from `app.storage.keys`. `open_storage` turns TRAINSHED_STORAGE_URL into an implementation.
"""

from pathlib import Path
from typing import BinaryIO, Final, Protocol

from app.storage.access import S3Access, parse_place
from app.storage.errors import MissingObject, UnsupportedStorage
from app.storage.local import LocalStorage
from app.storage.s3 import S3Storage

__all__ = [
    "LocalStorage",
    "MissingObject",
    "S3Access",
    "S3Storage",
    "Storage",
    "UnsupportedStorage",
    "configured_storage",
    "open_storage",
]

_FILE: Final = "file://"
_S3: Final = "s3://"


class Storage(Protocol):
    """Seven operations on whole files, named by key.

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

    def open(self, key: str) -> BinaryIO:
        """The stored file, open for reading and seeking; from afar it is fetched in pieces, as it is read.

        A file of this host stays readable until it is closed, also when its key is deleted meanwhile.

        Raises:
            MissingObject: there is none.
        """
        ...


class StorageSettings(Protocol):
    """What of the settings says where files live and how to get at them."""

    @property
    def effective_storage_url(self) -> str: ...
    @property
    def s3_endpoint(self) -> str: ...
    @property
    def s3_region(self) -> str: ...
    @property
    def s3_access_key_id(self) -> str: ...
    @property
    def s3_secret_access_key(self) -> str: ...


def configured_storage(settings: StorageSettings) -> Storage:
    """The storage that the settings name.

    Raises:
        UnsupportedStorage: they name none.
    """
    access = S3Access(
        endpoint=settings.s3_endpoint,
        region=settings.s3_region,
        access_key_id=settings.s3_access_key_id,
        secret_access_key=settings.s3_secret_access_key,
    )
    return open_storage(settings.effective_storage_url, access)


def open_storage(url: str, access: S3Access | None = None) -> Storage:
    """The storage behind a URL. What follows `file://` is the path as it stands, without percent-encoding.

    Raises:
        UnsupportedStorage: another scheme, a path that is not absolute, or an S3 address or access that is incomplete.
    """
    if url.startswith(_S3):
        return S3Storage(parse_place(url), access or S3Access())
    path = url.removeprefix(_FILE)
    if not url.startswith(f"{_FILE}/") or "\0" in path:
        scheme = url.partition("://")[0][:40]
        raise UnsupportedStorage(
            f"TRAINSHED_STORAGE_URL must be file:// and an absolute path, or s3:// and a bucket, not '{scheme}'; "
            "for example file:///var/lib/trainshed/storage or s3://models/trainshed"
        )
    return LocalStorage(Path(path))
