"""Sending stored files: always as an attachment, in whole or one range, with the digest as ETag."""

import os
import re
from pathlib import Path
from typing import Final

import structlog
from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.types import Receive, Scope, Send

from app.api.errors import RangeNotSatisfiable, StorageUnavailable
from app.errors import TrainshedError
from app.storage import MissingObject, Storage

log = structlog.get_logger("trainshed.api")

# One range; anything else is ignored, as RFC 9110 allows, and the whole file is sent.
_RANGE: Final = re.compile(r"\s*bytes\s*=\s*(\d{0,18})-(\d{0,18})\s*", re.ASCII | re.IGNORECASE)


def stored_file(storage: Storage, key: str, missing: TrainshedError) -> Path:
    """Where the file of a row can be read.

    Raises:
        missing: the storage does not have it (any more).
        StorageUnavailable: the storage failed.
    """
    try:
        path = storage.local_path(key)
    except MissingObject:
        raise missing from None
    except OSError as error:
        log.exception("storage failed", key=key)
        raise StorageUnavailable from error
    if path is None:
        raise missing
    return path


class Download(FileResponse):
    """A file that a browser saves and never shows, so that no stored file can run as a page of this server."""

    def __init__(self, path: Path, size: int, digest: str, media_type: str, filename: str) -> None:
        super().__init__(
            path,
            media_type=media_type,
            filename=filename,
            stat_result=os.stat(path),  # noqa: PTH116 - FileResponse wants just this
            headers={"ETag": f'"{digest}"', "Cache-Control": "private, no-cache"},
        )
        self._size = size

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        header = Request(scope).headers.get("range", "")
        found = _RANGE.fullmatch(header)
        if header and not (found and _is_range(found[1], found[2]) and self._is_same(scope)):
            scope = {**scope, "headers": [pair for pair in scope["headers"] if pair[0] != b"range"]}
        elif found is not None:
            self._check(found[1], found[2])
        await super().__call__(scope, receive, send)

    def _is_same(self, scope: Scope) -> bool:
        """Whether a range is one of the file that the client has a part of; of another one it gets the whole."""
        named = Request(scope).headers.get("if-range")
        return named is None or named in (self.headers["etag"], self.headers["last-modified"])

    def _check(self, first: str, last: str) -> None:
        if (first and int(first) >= self._size) or (not first and int(last) == 0) or self._size == 0:
            raise RangeNotSatisfiable(self._size)


def _is_range(first: str, last: str) -> bool:
    return bool(first or last) and not (first and last and int(first) > int(last))


def not_modified(request: Request, digest: str) -> Response | None:
    """304 when the client names the file it already has, else None."""
    etag = f'"{digest}"'
    named = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    return Response(status_code=304, headers={"ETag": etag}) if etag in named or "*" in named else None
