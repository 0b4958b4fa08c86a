"""Storage in a bucket of an S3-compatible server, spoken to by obstore.

An object appears whole or not at all, also when it was sent in parts, and is durable once the server has said so.
Reading goes in pieces: each request has a time limit, and a large file may take longer than any sensible one.
"""

import errno
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

import obstore
from obstore.exceptions import BaseError, PreconditionError
from obstore.store import S3Store

from app.storage.access import S3Access, S3Place
from app.storage.errors import MissingObject
from app.storage.keys import is_segment, segments_of
from app.storage.regular import new_file, open_source
from app.storage.s3_errors import code_of, explained

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, RetryConfig, S3Credential

_PIECE_BYTES: Final = 8 * 1024**2
# A server takes at most 10,000 parts of one object. Source: Amazon S3 User Guide, "Multipart upload limits".
_MOST_PARTS: Final = 9_000
_PARTS_AT_ONCE: Final = 4
_TRIES: Final = 3

_CLIENT: Final["ClientConfig"] = {"connect_timeout": "5s", "timeout": "60s"}
_RETRY: Final["RetryConfig"] = {
    "max_retries": 4,
    "retry_timeout": timedelta(seconds=60),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=5)},
}


class S3Storage:
    """Objects in a bucket that exists already. May be used from any thread; nothing is asked of the server yet.

    Only what an answer says by its status and its code reaches an error: the rest can have addresses and keys in it.
    """

    def __init__(
        self,
        place: S3Place,
        access: S3Access,
        *,
        client: "ClientConfig | None" = None,
        retry: "RetryConfig | None" = None,
        piece_bytes: int = _PIECE_BYTES,
    ) -> None:
        named = {"endpoint": access.endpoint, "region": access.region}
        options: ClientConfig = {**_CLIENT, **(client or {}), "allow_http": not access.encrypted}
        self._bucket = place.bucket
        self._piece_bytes = piece_bytes
        self._store = S3Store(
            place.bucket,
            prefix=place.prefix or None,
            client_options=options,
            retry_config={**_RETRY, **(retry or {})},
            credential_provider=_provider(access),
            disable_bulk_delete=True,  # not every server that speaks S3 has it
            **{name: value for name, value in named.items() if value},  # type: ignore[arg-type] # all of them are text
        )

    def put(self, key: str, source: Path) -> None:
        segments_of(key)
        with open_source(source) as file, self._failures(None):
            size = file.seek(0, io.SEEK_END)
            file.seek(0)
            if not size:  # one request; there is no object without a part
                obstore.put(self._store, key, b"")
                return
            part = max(self._piece_bytes, -(-size // _MOST_PARTS))
            obstore.put(self._store, key, file, chunk_size=part, max_concurrency=_PARTS_AT_ONCE)

    def get(self, key: str, destination: Path) -> None:
        for left in reversed(range(_TRIES)):
            try:
                with self._object(key) as source, new_file(destination) as copy:
                    for piece in source.pieces():
                        copy.write(piece)
            except Replaced:
                if not left:
                    raise
            else:
                return

    def exists(self, key: str) -> bool:
        try:
            self._head(key)
        except MissingObject:
            return False
        return True

    def list(self, prefix: str = "") -> list[str]:
        below = "/".join(segments_of(prefix.rstrip("/"))) if prefix else None
        with self._failures(None):
            found = [facts["path"] for chunk in obstore.list(self._store, below) for facts in chunk]
        return sorted(key for key in found if all(map(is_segment, key.split("/"))))

    def delete(self, key: str) -> None:
        segments_of(key)
        # Most servers do not say whether there was anything; for those that do, it is no error.
        with suppress(MissingObject), self._failures(key):
            obstore.delete(self._store, key)

    def local_path(self, key: str) -> Path | None:
        self._head(key)
        return None

    def open(self, key: str) -> BinaryIO:
        return io.BufferedReader(self._object(key))

    def _head(self, key: str) -> "ObjectMeta":
        segments_of(key)
        with self._failures(key):
            return obstore.head(self._store, key)

    def _object(self, key: str) -> "_Object":
        return _Object(self, key, self._head(key))

    def read(self, key: str, start: int, tag: str | None, size: int) -> bytes:
        """A piece of the object, beginning at `start`, of the version with this tag.

        Raises:
            Replaced: there is another version now.
        """
        end = min(start + self._piece_bytes, size)
        options: obstore.GetOptions = {"range": (start, end), "if_match": tag}
        with self._failures(key):
            try:
                return bytes(obstore.get(self._store, key, options=options).bytes())
            except PreconditionError:
                raise Replaced(key) from None

    @contextmanager
    def _failures(self, key: str | None) -> Iterator[None]:
        """Turns what the library raises into OSError; what is missing while `key` is wanted, into MissingObject."""
        try:
            yield
        except FileNotFoundError as error:
            if isinstance(error, MissingObject):
                raise
            # A head has no body, so it looks the same without the object and without the bucket. Without this,
            # every file would look deleted while the bucket is not there.
            if key is None or code_of(error) == "NoSuchBucket":
                raise explained(error, self._bucket) from None
            self._require_bucket()
            raise MissingObject(key) from None
        except BaseError as error:
            raise explained(error, self._bucket) from None

    def _require_bucket(self) -> None:
        try:
            next(iter(obstore.list(self._store, chunk_size=1)), None)
        except (FileNotFoundError, BaseError) as error:
            raise explained(error, self._bucket) from None


class Replaced(OSError):
    """The object was written anew while it was read; what was read belongs to the version before."""

    def __init__(self, key: str) -> None:
        super().__init__(errno.EIO, f"'{key}' was replaced in the storage while it was read")


class _Object(io.RawIOBase):
    """An object as a file: the piece around the position is kept, and another one fetched where that ends."""

    def __init__(self, storage: S3Storage, key: str, facts: "ObjectMeta") -> None:
        super().__init__()
        self._storage = storage
        self._key = key
        self._size = facts["size"]
        self._tag = facts["e_tag"]
        self._at = 0
        self._piece = b""
        self._piece_at = 0

    def pieces(self) -> Iterator[bytes]:
        """All of it, from the beginning."""
        at = 0
        while at < self._size:
            piece = self._fetch(at)
            yield piece
            at += len(piece)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: "bytearray | memoryview", /) -> int:  # type: ignore[override] # what BufferedReader gives
        if self._at >= self._size:
            return 0
        if not self._piece_at <= self._at < self._piece_at + len(self._piece):
            self._piece, self._piece_at = self._fetch(self._at), self._at
        start = self._at - self._piece_at
        part = self._piece[start : start + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _fetch(self, at: int) -> bytes:
        piece = self._storage.read(self._key, at, self._tag, self._size)
        if not piece:
            raise OSError(errno.EIO, f"the S3 storage ends '{self._key}' too early")
        return piece


def _provider(access: S3Access) -> "Callable[[], S3Credential] | None":
    """The keys of the settings alone: given one by one, they would be joined by a session token of the environment."""
    if not access.access_key_id:
        return None
    credential: S3Credential = {
        "access_key_id": access.access_key_id,
        "secret_access_key": access.secret_access_key,
        "token": None,
        "expires_at": None,
    }
    return lambda: credential
