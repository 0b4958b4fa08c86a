"""Receiving a file: streamed to disk as it arrives, never held in memory, gone again when its request is done."""

import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

import structlog
from anyio.to_thread import run_sync
from fastapi import Request
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.api.errors import BodyTooLarge, MalformedUpload, StorageUnavailable

log = structlog.get_logger("trainshed.api")

FILE_FIELD: Final = "file"
NAME_FIELD: Final = "name"
PREFIX: Final = "upload-"
_ABANDONED_S: Final = 24 * 3600.0
_FLUSH_BYTES: Final = 1024 * 1024
_MAX_NAME_BYTES: Final = 1024
_MAX_PARTS: Final = 8


@dataclass(frozen=True)
class Upload:
    """A received file, and the name that the client gave it ("" when it gave none)."""

    path: Path
    name: str


@asynccontextmanager
async def received(request: Request, folder: Path, limit: int) -> AsyncIterator[Upload]:
    """The file in the request's body, one that lives as long as the block.

    Either the body is the file, or it is a form (`multipart/form-data`) with one part `file` and perhaps a part
    `name`.

    Raises:
        BodyTooLarge: the file has more than `limit` bytes.
        MalformedUpload: the form is broken or has no file.
        StorageUnavailable: the folder cannot take it: no space is left, for example.
    """
    with _storage_errors():
        descriptor, path = _new_file(folder)
    try:
        with _storage_errors(), os.fdopen(descriptor, "wb") as file:
            sink = _Sink(file, limit)
            name = await _read(request, sink)
            await sink.flush()
        yield Upload(path, name)
    finally:
        os.unlink(path)  # noqa: PTH108 - one quick call, which a pathlib rule would want in another thread


@contextmanager
def _storage_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        log.exception("an upload cannot be kept")
        raise StorageUnavailable from error


def remove_abandoned(folder: Path, now: datetime) -> None:
    """Remove what a killed process left behind; files of a day ago, since another process may be receiving new ones."""
    for path in folder.glob(f"{PREFIX}*"):
        with suppress(FileNotFoundError):
            if now.timestamp() - path.stat().st_mtime > _ABANDONED_S:
                path.unlink()


def _new_file(folder: Path) -> tuple[int, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, path = tempfile.mkstemp(prefix=PREFIX, dir=folder)
    return descriptor, Path(path)


async def _read(request: Request, sink: "_Sink") -> str:
    content_type = request.headers.get("content-type", "")
    kind, options = parse_options_header(content_type.encode("latin-1"))
    if kind != b"multipart/form-data":
        async for chunk in request.stream():
            sink.add(chunk)
            await sink.flush_if_full()
        return ""
    boundary = options.get(b"boundary")
    if not boundary:
        raise MalformedUpload("The header Content-Type of a form must name its boundary.")
    form = _Form(sink)
    try:
        parser = form.parser(boundary)
        async for chunk in request.stream():
            parser.write(chunk)
            await sink.flush_if_full()
        parser.finalize()
    except FormParserError as error:
        raise MalformedUpload("The multipart body is broken; send it as a form does.") from error
    return form.finish()


class _Sink:
    """Writes in large pieces and in another thread, so that a slow disk holds nobody else up."""

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self._file = file
        self._limit = limit
        self._pending = bytearray()
        self._size = 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._limit:
            raise BodyTooLarge(self._limit)
        self._pending += data

    async def flush_if_full(self) -> None:
        if len(self._pending) >= _FLUSH_BYTES:
            await self.flush()

    async def flush(self) -> None:
        pending, self._pending = self._pending, bytearray()
        if pending:
            await run_sync(self._file.write, pending)


class _Form:
    """What the parser of the form reports: the part `file` goes to the sink, a part `name` is kept."""

    def __init__(self, sink: _Sink) -> None:
        self._sink = sink
        self._parts = 0
        self._field = ""
        self._header = (bytearray(), bytearray())
        self._filename = ""
        self._name = bytearray()
        self._has_file = False
        self._complete = False

    def parser(self, boundary: bytes) -> MultipartParser:
        return MultipartParser(
            boundary,
            {
                "on_part_begin": self._begin,
                "on_header_field": lambda data, start, end: self._header[0].extend(data[start:end]),
                "on_header_value": lambda data, start, end: self._header[1].extend(data[start:end]),
                "on_header_end": self._end_header,
                "on_headers_finished": self._end_headers,
                "on_part_data": self._data,
                "on_end": self._end,
            },
        )

    def finish(self) -> str:
        """The file's name: the part `name`, else the file's own."""
        if not self._complete:
            raise MalformedUpload("The multipart body ends before its last boundary; the upload was cut off.")
        if not self._has_file:
            raise MalformedUpload("The form has no file; send it in a part named 'file'.")
        return self._name.decode(errors="replace") or self._filename

    def _begin(self) -> None:
        self._parts += 1
        self._field = ""
        if self._parts > _MAX_PARTS:
            raise MalformedUpload("The form has too many parts; it needs 'file' and perhaps 'name'.")

    def _end_header(self) -> None:
        name, value = (bytes(part) for part in self._header)
        self._header = (bytearray(), bytearray())
        if name.lower() == b"content-disposition":
            _, options = parse_options_header(value)
            self._field = options.get(b"name", b"").decode(errors="replace")
            if self._field == FILE_FIELD:
                self._filename = options.get(b"filename", b"").decode(errors="replace")

    def _end_headers(self) -> None:
        if self._field == FILE_FIELD:
            if self._has_file:
                raise MalformedUpload("The form has two files; upload one at a time.")
            self._has_file = True
        elif self._field != NAME_FIELD:
            raise MalformedUpload(f"The form has a part '{self._field[:64]}'; it needs 'file' and perhaps 'name'.")

    def _data(self, data: bytes, start: int, end: int) -> None:
        if self._field == FILE_FIELD:
            self._sink.add(data[start:end])
            return
        self._name += data[start:end]
        if len(self._name) > _MAX_NAME_BYTES:
            raise MalformedUpload("The part 'name' is too long; a name has at most 255 characters.")

    def _end(self) -> None:
        self._complete = True
