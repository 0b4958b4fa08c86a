"""Sending stored files: always as an attachment, in whole or one range, with the digest as ETag."""

import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import structlog
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from app.api.errors import RangeNotSatisfiable, StorageUnavailable
from app.api.uploads import PREFIX
from app.errors import TrainshedError
from app.storage import MissingObject, Storage

log = structlog.get_logger("trainshed.api")

# One range; anything else is ignored, as RFC 9110 allows, and the whole file is sent.
_RANGE: Final = re.compile(r"\s*bytes\s*=\s*(\d{0,18})-(\d{0,18})\s*", re.ASCII | re.IGNORECASE)
_BLOCK: Final = 256 * 1024


@dataclass(frozen=True)
class Stored:
    """A stored file, as its row describes it; `filename` is a segment of a key, so it needs no quoting."""

    key: str
    size: int
    digest: str
    media_type: str
    filename: str


def download(request: Request, storage: Storage, file: Stored, missing: TrainshedError) -> Response:
    """The answer with a stored file: from the disk where it lies on this host, else passed on as it is fetched.

    Raises:
        missing: the storage does not have it (any more).
        StorageUnavailable: the storage failed.
        RangeNotSatisfiable: the client asks for a part that the file does not have.
    """
    with _answering(file.key, missing):
        path = storage.local_path(file.key)
        if path is not None:
            return Download(path, file)
        source = storage.open(file.key)
    return _passed_on(request, source, file)


def open_stored(storage: Storage, key: str, missing: TrainshedError) -> BinaryIO:
    """The file of a row, open for reading. Raises as `download`."""
    with _answering(key, missing):
        return storage.open(key)


@contextmanager
def as_file(storage: Storage, key: str, folder: Path, missing: TrainshedError) -> Iterator[Path]:
    """Where the file of a row can be read, for as long as the block runs; from afar it is fetched into `folder` first.

    Raises as `download`.
    """
    fetched = folder / f"{PREFIX}{secrets.token_hex(8)}"
    try:
        with _answering(key, missing):
            path = storage.local_path(key)
            if path is None:
                folder.mkdir(parents=True, exist_ok=True)
                storage.get(key, fetched)
        yield path or fetched
    finally:
        fetched.unlink(missing_ok=True)


@contextmanager
def _answering(key: str, missing: TrainshedError) -> Iterator[None]:
    try:
        yield
    except MissingObject:
        raise missing from None
    except OSError as error:
        log.exception("storage failed", key=key)
        raise StorageUnavailable from error


class Download(FileResponse):
    """A file that a browser saves and never shows, so that no stored file can run as a page of this server."""

    def __init__(self, path: Path, file: Stored) -> None:
        super().__init__(
            path,
            media_type=file.media_type,
            filename=file.filename,
            stat_result=os.stat(path),  # noqa: PTH116 - FileResponse wants just this
            headers=_headers(file.digest),
        )
        self._size = file.size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        header = Request(scope).headers.get("range", "")
        found = _RANGE.fullmatch(header)
        if header and not (found and _is_range(found[1], found[2]) and self._is_same(scope)):
            scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != b"range"]}
        elif found is not None:
            _check(found[1], found[2], self._size)
        await super().__call__(scope, receive, send)

    def _is_same(self, scope: Scope) -> bool:
        """Whether a range is one of the file that the client has a part of; of another one it gets the whole."""
        named = Request(scope).headers.get("if-range")
        return named is None or named in (self.headers["etag"], self.headers["last-modified"])


def _passed_on(request: Request, source: BinaryIO, file: Stored) -> Response:
    """The same answer from an open file. An answer that breaks off is shorter than its Content-Length says."""
    found = _RANGE.fullmatch(request.headers.get("range", ""))
    wanted = request.headers.get("if-range") in (None, f'"{file.digest}"')
    start, end, status = 0, file.size, 200
    if found is not None and wanted and _is_range(found[1], found[2]):
        _check(found[1], found[2], file.size)
        start, end, status = *_bounds(found[1], found[2], file.size), 206
    headers = _headers(file.digest) | {
        "Accept-Ranges": "bytes",
        "Content-Disposition": f'attachment; filename="{file.filename}"',
        "Content-Length": str(end - start),
    }
    if status == 206:  # noqa: PLR2004 - Partial Content, which says what part
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{file.size}"
    if request.method == "HEAD":
        source.close()
        return Response(status_code=status, headers=headers, media_type=file.media_type)
    blocks = _blocks(source, start, end)
    return StreamingResponse(blocks, status_code=status, headers=headers, media_type=file.media_type)


def _blocks(source: BinaryIO, start: int, end: int) -> Iterator[bytes]:
    with source:
        source.seek(start)
        while start < end and (block := source.read(min(_BLOCK, end - start))):
            start += len(block)
            yield block


def _headers(digest: str) -> dict[str, str]:
    return {"ETag": f'"{digest}"', "Cache-Control": "private, no-cache"}


def _is_range(first: str, last: str) -> bool:
    return bool(first or last) and not (first and last and int(first) > int(last))


def _bounds(first: str, last: str, size: int) -> tuple[int, int]:
    """The first byte of a range, and the one after its last; without a first one it is the end of the file."""
    if not first:
        return max(0, size - int(last)), size
    return int(first), min(size, int(last) + 1) if last else size


def _check(first: str, last: str, size: int) -> None:
    if (first and int(first) >= size) or (not first and int(last) == 0) or size == 0:
        raise RangeNotSatisfiable(size)


def not_modified(request: Request, digest: str) -> Response | None:
    """304 when the client names the file it already has, else None."""
    etag = f'"{digest}"'
    named = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    return Response(status_code=304, headers={"ETag": etag}) if etag in named or "*" in named else None
