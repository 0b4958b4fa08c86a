"""Tables to train on: upload, register, list, read, delete."""

import hashlib
from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Final

import structlog
from anyio.to_thread import run_sync
from fastapi import Path as PathParameter
from fastapi import Query, Request, Response
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.accounts.service import Principal
from app.api.bodies import json_response
from app.api.downloads import as_file
from app.api.errors import StorageUnavailable
from app.api.filters import IdempotencyKey
from app.api.idempotency import digest_of, find_replay, remember
from app.api.limits import JSON, content_type
from app.api.openapi import problems
from app.api.paging import DatasetPage, list_response
from app.api.registration import DatasetRequest, at_root, check_in_place, preview_in_place, read_request
from app.api.routing import api_router
from app.api.services import PrincipalDep, Services, ServicesDep
from app.api.uploads import Upload as Received
from app.api.uploads import received
from app.api.views import BuiltinView, DatasetLine, DatasetView, ListView, PreviewView
from app.datasets.models import Dataset
from app.datasets.schemas import dataset_json, dataset_line, describe_builtin
from app.datasets.service import (
    Also,
    InPlace,
    Upload,
    add_dataset,
    delete_dataset,
    get_dataset,
    list_datasets,
    register_dataset,
)
from app.errors import Conflict, NotFound
from app.ids import pattern
from app.jobs.inputs import holders_of
from app.tables import BUILTIN, Preview, detect, format_of, preview
from app.tables.apart import PACKED, preview_apart, profile_apart

log = structlog.get_logger("trainshed.api")
router = api_router(prefix="/v1/datasets", tag="Datasets")

_ID_PATTERN: Final = f"({pattern('ds')})|(^({'|'.join(BUILTIN)})$)"
AnyDataset = Annotated[
    str, PathParameter(pattern=_ID_PATTERN, description="A data set's id, or the name of a built-in one.")
]
OwnDataset = Annotated[str, PathParameter(pattern=pattern("ds"), description="The data set's id.")]
_BINARY: Final = {"type": "string", "format": "binary"}
_FORM: Final = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": {
            "type": "string",
            "format": "binary",
            "description": "CSV or TSV (UTF-8, with a header row), Parquet, or NPZ.",
        },
        "name": {
            "type": "string",
            "maxLength": 255,
            "description": "What to call it; else the file's name.",
            "example": "",
        },
    },
}
_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {"schema": _FORM},
            "text/csv": {"schema": _BINARY, "example": "a,b,label\n1,2,yes\n3,4,no\n"},
            "text/tab-separated-values": {"schema": _BINARY, "example": "a\tb\tlabel\n1\t2\tyes\n3\t4\tno\n"},
            "application/vnd.apache.parquet": {"schema": _BINARY},
            "application/octet-stream": {"schema": _BINARY},
            "application/json": {"schema": {"$ref": "#/components/schemas/DatasetRequest"}},
        },
    }
}


@router.post(
    "",
    status_code=201,
    summary="Upload or register a table",
    openapi_extra=_BODY,
    responses={
        201: {
            "model": DatasetView,
            "description": "The data set. A repeat with the same Idempotency-Key gets it again.",
            "headers": {
                "Location": {"schema": {"type": "string"}, "description": "The data set's address."},
                "Idempotency-Replayed": {"schema": {"type": "string"}, "description": "`true` on a repeat."},
            },
        },
        **problems(
            "malformed_upload",
            "malformed_json",
            "invalid_data",
            "invalid_request",
            "idempotency_mismatch",
            "conflict",
            "storage_unavailable",
        ),
    },
)
async def create_dataset(
    request: Request,
    services: ServicesDep,
    principal: PrincipalDep,
    name: Annotated[str | None, Query(max_length=255, description="What to call it.")] = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """A CSV, TSV, Parquet or NPZ file, as a form with a part `file` or as the body itself; checked while it is here.

    What it is is told by its content. It streams to disk. What is wrong with it is answered 422, with row and column;
    what may become a problem in training is in the answer's `problems`.

    A JSON body with a `uri` registers a file in one of the server's data roots, which is read where it lies.
    """
    if content_type(request.headers.get("content-type", "")) in JSON:
        wanted = read_request(await request.body())
        wanted = wanted if name is None else wanted.model_copy(update={"name": name})
        return await _create(services, principal, idempotency_key, wanted)
    async with received(request, services.limits.upload_dir, services.limits.max_upload_bytes) as upload:
        return await _create(services, principal, idempotency_key, replace(upload, name=name or upload.name))


async def _create(
    services: Services, principal: Principal, key: str | None, wanted: DatasetRequest | Received
) -> Response:
    same = None if key is None else (key, await run_sync(_digest, wanted))
    earlier = None if same is None else await run_sync(_earlier, services, principal, same)
    content, replayed = earlier or {}, earlier is not None
    if not replayed:
        checked = await _checked(services, wanted)
        content, replayed = await run_sync(_add, services, principal, checked, same)
    headers = {"Location": f"/v1/datasets/{content['id']}"} | ({"Idempotency-Replayed": "true"} if replayed else {})
    return json_response(content, status=201, headers=headers)


async def _checked(services: Services, wanted: DatasetRequest | Received) -> Upload | InPlace:
    if isinstance(wanted, DatasetRequest):
        return await at_root(services, wanted.uri, "check", lambda roots: check_in_place(roots, wanted))
    return await run_sync(_profiled, wanted, limiter=services.checkers)


def _profiled(wanted: Received) -> Upload:
    table_format = detect(wanted.path)
    return Upload(wanted.path, wanted.name, profile_apart(wanted.path, table_format), table_format)


def _digest(wanted: DatasetRequest | Received) -> str:
    if isinstance(wanted, DatasetRequest):
        return digest_of("POST /v1/datasets", wanted.name or "", wanted.uri)
    with wanted.path.open("rb") as file:
        return digest_of("POST /v1/datasets", wanted.name, hashlib.file_digest(file, "sha256").hexdigest())


def _earlier(services: Services, principal: Principal, same: tuple[str, str]) -> dict[str, Any] | None:
    """The data set that the same Idempotency-Key made before, if any; data sets never change."""
    with services.database.read() as session:
        found = find_replay(session, principal.key_id, same)
        if found is None:
            return None
        try:
            return dataset_json(get_dataset(session, principal.project_id, found))
        except NotFound:
            raise Conflict(f"Data set '{found}', which this Idempotency-Key made, is deleted; use a new key.") from None


def _add(
    services: Services, principal: Principal, found: Upload | InPlace, same: tuple[str, str] | None
) -> tuple[dict[str, Any], bool]:
    """The new data set, or the one that another request with the same Idempotency-Key made in the meantime."""
    now = services.clock.now()

    def keep(session: Session, dataset_id: str) -> None:
        if same is not None:
            remember(session, principal.key_id, same, dataset_id, now)

    try:
        dataset = _write(services, principal, found, now, keep)
    except IntegrityError:
        earlier = None if same is None else _earlier(services, principal, same)
        if earlier is None:
            raise
        return earlier, True
    except OSError as error:
        log.exception("storage failed")
        raise StorageUnavailable from error
    return dataset_json(dataset), False


def _write(services: Services, principal: Principal, found: Upload | InPlace, now: datetime, also: Also) -> Dataset:
    project_id, user = principal.project_id, principal.user
    if isinstance(found, InPlace):
        return register_dataset(services.database, found, project_id=project_id, user=user, now=now, also=also)
    return add_dataset(services.database, services.storage, found, project_id=project_id, user=user, now=now, also=also)


@router.get("", summary="List uploaded tables", responses={200: {"model": ListView[DatasetLine]}})
def list_all_datasets(request: Request, services: ServicesDep, principal: PrincipalDep, page: DatasetPage) -> Response:
    """The project's tables; the columns of one come with its id. Built-in ones are not among them."""
    with services.database.read() as session:
        rows = list_datasets(
            session, principal.project_id, after=page.after, limit=page.fetch, descending=page.descending
        )
    return list_response(request, rows, page.limit, dataset_line, lambda row: row.id)


@router.get("/{dataset_id}", summary="Read about a table", responses={200: {"model": DatasetView | BuiltinView}})
def read_dataset(dataset_id: AnyDataset, services: ServicesDep, principal: PrincipalDep) -> Response:
    """Rows, columns, statistics, and what of it may become a problem in training."""
    if dataset_id in BUILTIN:
        return json_response(describe_builtin(dataset_id))
    with services.database.read() as session:
        return json_response(dataset_json(get_dataset(session, principal.project_id, dataset_id)))


@router.get("/{dataset_id}/preview", summary="Read a table's first rows", responses={200: {"model": PreviewView}})
async def preview_dataset(
    dataset_id: AnyDataset,
    services: ServicesDep,
    principal: PrincipalDep,
    rows: Annotated[int, Query(ge=1, le=100, description="How many at most.")] = 20,
) -> Response:
    """The first rows: cells of a text file as they stand there, others as numbers, text, times, and arrays as lists."""
    if dataset_id in BUILTIN:
        shown = await run_sync(lambda: preview(None, dataset_id, rows=rows))
    else:
        dataset = await run_sync(_find, services, principal, dataset_id)
        shown = await _preview(services, dataset, rows)
    return json_response({"object": "preview", "columns": shown.names, "rows": shown.rows})


async def _preview(services: Services, dataset: Dataset, rows: int) -> Preview:
    if dataset.uri is None:
        # A packed file is read by a child: no more of them at once than uploads are checked.
        limiter = services.checkers if dataset.format in PACKED else None
        return await run_sync(_preview_stored, services, dataset, rows, limiter=limiter)
    return await at_root(services, dataset.uri, "preview", lambda roots: preview_in_place(roots, dataset, rows))


def _find(services: Services, principal: Principal, dataset_id: str) -> Dataset:
    with services.database.read() as session:
        return get_dataset(session, principal.project_id, dataset_id)


def _preview_stored(services: Services, dataset: Dataset, rows: int) -> Preview:
    missing = NotFound("file of data set", dataset.id)
    with as_file(services.storage, dataset.storage_key, services.limits.upload_dir, missing) as path:
        return preview_apart(path, format_of(dataset.format), rows=rows)


@router.delete("/{dataset_id}", status_code=204, summary="Delete a table", responses=problems("conflict"))
def remove_dataset(dataset_id: OwnDataset, services: ServicesDep, principal: PrincipalDep) -> Response:
    """Gone for good, unless a job that is not over needs it."""
    delete_dataset(services.database, services.storage, principal.project_id, dataset_id, holders=holders_of)
    services.schemas.clear()
    return Response(status_code=204)
