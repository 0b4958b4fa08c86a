"""Registering a table that stays where it is: read through one open file, whatever becomes of its name meanwhile."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Final, TypeVar

import structlog
from pydantic import BaseModel, ConfigDict, Field

from app.api.bodies import decode, validated
from app.api.errors import StorageUnavailable
from app.api.services import Services
from app.datasets.models import Dataset
from app.datasets.roots import URI_LIMIT, DataRoots, UnknownRoot, parse_uri
from app.datasets.service import InPlace
from app.errors import Conflict
from app.tables import InvalidTable, Preview, detect
from app.tables.apart import preview_apart, profile_apart
from app.tables.in_place import RootUnavailable, UnusableFile

log = structlog.get_logger("trainshed.api")
T = TypeVar("T")
_POINTER: Final = "/uri"


class DatasetRequest(BaseModel):
    """A table in a data root."""

    model_config = ConfigDict(extra="forbid")

    uri: Annotated[
        str,
        Field(
            max_length=URI_LIMIT,
            description="Where it lies: `root://`, the name of a data root (`GET /v1/catalog`), the path in it.",
            examples=["root://scans/2025/table.csv"],
        ),
    ]
    name: Annotated[
        str | None, Field(max_length=255, description="What to call it; else the file's name.", examples=["scans"])
    ] = None


def read_request(raw: bytes) -> DatasetRequest:
    """The body of a registration.

    Raises:
        MalformedJson, InvalidRequest: it is none.
    """
    return validated(decode(raw), DatasetRequest)


async def at_root(services: Services, uri: str, what: str, work: Callable[[DataRoots], T]) -> T:
    """Do what reads a data root in a thread, few of a kind at once; `what` names the kind.

    Raises:
        InvalidUri: at once.
        StorageUnavailable: the root does not answer.
        Exception: what `work` raised.
    """
    roots, root = services.roots, parse_uri(uri).root
    turn = (root if root in roots.names else "", what)
    with _answering(uri):
        return await services.turns.run(turn, uri, lambda: work(roots))


@contextmanager
def _answering(uri: str) -> Iterator[None]:
    try:
        yield
    except RootUnavailable as error:
        log.warning("a data root cannot be read", uri=uri, reason=str(error))
        raise StorageUnavailable(str(error)) from None
    except OSError as error:
        log.exception("a data root cannot be read", uri=uri)
        reason = error.strerror or "its file system failed"
        raise StorageUnavailable(str(RootUnavailable(uri, reason))) from error


def check_in_place(roots: DataRoots, wanted: DatasetRequest) -> InPlace:
    """Read all of the file: its digest, its table, and whether it stood still meanwhile.

    Raises:
        InvalidUri, UnknownRoot, UnusableFile, InvalidTable: it cannot be used.
        StorageUnavailable: its file system failed.
    """
    try:
        with _answering(wanted.uri), roots.open(wanted.uri) as file:
            table_format = detect(file.path)
            table = profile_apart(file.path, table_format, descriptor=file.descriptor)
            digest = file.digest()
            file.require_unchanged()
            return InPlace(
                uri=wanted.uri,
                name=wanted.name or "",
                table=table,
                format=table_format,
                size_bytes=file.size_bytes,
                digest=digest,
                modified_at=file.modified_at,
            )
    except InvalidTable as error:
        raise InvalidTable([replace(problem, pointer=_POINTER) for problem in error.problems]) from None


def preview_in_place(roots: DataRoots, dataset: Dataset, rows: int) -> Preview:
    """The first rows of a table that is read in place.

    Raises:
        Conflict: it is not there any more, or was written anew since it was registered.
        StorageUnavailable: its file system failed.
    """
    uri = dataset.uri or ""
    try:
        with _answering(uri), roots.open(uri) as file:
            if (file.size_bytes, file.modified_at) != (dataset.size_bytes, dataset.modified_at):
                raise Conflict(f"'{uri}' was written anew since it was registered; register it again.")
            return preview_apart(file.path, dataset.format, rows=rows, descriptor=file.descriptor)
    except (UnusableFile, UnknownRoot) as error:
        raise Conflict(f"Data set '{dataset.id}' cannot be read now: {error}") from None
