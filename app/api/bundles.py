"""Code to train with: upload, list, read, download, delete."""

from dataclasses import replace
from datetime import datetime
from typing import Annotated, Any, Final

import structlog
from anyio.to_thread import run_sync
from fastapi import Depends, Path, Query, Request, Response
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.accounts.service import CODE, Principal
from app.api.bodies import json_response
from app.api.bundle_views import BundleDetail, BundleView
from app.api.downloads import Stored, download, not_modified
from app.api.errors import StorageUnavailable
from app.api.filters import IdempotencyKey
from app.api.idempotency import digest_of, find_replay, remember
from app.api.openapi import problems
from app.api.paging import Page, list_response, page_of
from app.api.routing import api_router, permission
from app.api.services import PrincipalDep, Services, ServicesDep
from app.api.uploads import Upload, received
from app.api.views import ListView
from app.bundles.models import Bundle
from app.bundles.repository import get_bundle, list_bundles
from app.bundles.schemas import bundle_json, bundle_with_files
from app.bundles.service import (
    Also,
    CheckedBundle,
    add_bundle,
    bundle_contents,
    check_bundle,
    delete_bundle,
    digest_of_file,
    use_bundle,
)
from app.errors import Conflict, NotFound
from app.ids import pattern
from app.jobs.inputs import holders_of
from app.jobs.models import IdempotencyKey as IdempotencyRow
from app.storage import MissingObject
from app.storage.keys import is_segment

log = structlog.get_logger("trainshed.api")
router = api_router(prefix="/v1/bundles", tag="Bundles")

BundleId = Annotated[str, Path(pattern=pattern("bun"), description="The bundle's id.")]
BundlePage = Annotated[Page, Depends(page_of("bun"))]
_ZIP: Final = "application/zip"
_ROUTE: Final = "POST /v1/bundles"
_BINARY: Final = {"type": "string", "format": "binary"}
_FORM: Final = {
    "type": "object",
    "required": ["file"],
    "properties": {
        "file": _BINARY | {"description": "A ZIP archive of your code, or a wheel."},
        "name": {"type": "string", "maxLength": 255, "description": "What to call it; else the file's name."},
    },
}
_BODY: Final = {
    "requestBody": {
        "required": True,
        "content": {
            _ZIP: {"schema": _BINARY},
            "multipart/form-data": {"schema": _FORM},
            "application/octet-stream": {"schema": _BINARY},
        },
    }
}
_ANSWER: Final = {
    "model": BundleView,
    "headers": {
        "Location": {"schema": {"type": "string"}, "description": "The bundle's address."},
        "Idempotency-Replayed": {"schema": {"type": "string"}, "description": "`true` on a repeat."},
    },
}
_FILE: Final = {"content": {_ZIP: {"schema": _BINARY}}}
Answer = tuple[dict[str, Any], int]
"""What is answered, and the status."""
Same = tuple[str, str] | None
"""An Idempotency-Key and the digest of what was sent with it."""


@router.post(
    "",
    status_code=201,
    summary="Upload code",
    openapi_extra=_BODY | permission(CODE),
    responses={
        201: _ANSWER | {"description": "The new bundle."},
        200: _ANSWER | {"description": "The bundle with just these bytes, which the project has already."},
        **problems(
            "malformed_upload",
            "invalid_request",
            "not_an_archive",
            "unsafe_archive",
            "archive_too_large",
            "invalid_bundle",
            "idempotency_mismatch",
            "conflict",
            "storage_unavailable",
        ),
    },
)
async def create_bundle(
    request: Request,
    services: ServicesDep,
    principal: PrincipalDep,
    name: Annotated[str | None, Query(max_length=255, description="What to call it.")] = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """A ZIP archive or a wheel, as the body itself or as a form with a part `file`. It streams to disk.

    It is read through before it is stored, so what is accepted can be unpacked: regular files and folders alone, with
    plain relative names, within the limits of the settings. The same bytes are stored once in a project.

    The key needs the permission `code`, whatever its role.
    """
    async with received(request, services.limits.upload_dir, services.limits.max_bundle_bytes) as upload:
        named = replace(upload, name=name or upload.name)
        digest = await run_sync(digest_of_file, upload.path)
        same = None if idempotency_key is None else (idempotency_key, digest_of(_ROUTE, named.name, digest))
        answer = await run_sync(_earlier, services, principal, same)
        if answer is not None:
            return _created(answer, {"Idempotency-Replayed": "true"})
        answer = await run_sync(_known, services, principal, digest, same)
        if answer is None:
            checked = await run_sync(_checked, services, named, digest, limiter=services.checkers)
            answer = await run_sync(_add, services, principal, checked, same)
        return _created(answer, {})


def _created(answer: Answer, headers: dict[str, str]) -> Response:
    content, status = answer
    return json_response(content, status, {"Location": f"/v1/bundles/{content['id']}", **headers})


def _earlier(services: Services, principal: Principal, same: Same) -> Answer | None:
    """The first answer to the same Idempotency-Key, if there was one; bundles never change."""
    if same is None:
        return None
    with services.database.read() as session:
        found = find_replay(session, principal.key_id, same)
        row = session.get(IdempotencyRow, (principal.key_id, same[0]))
        if found is None or row is None:
            return None
        try:
            bundle = get_bundle(session, principal.project_id, found)
        except NotFound:
            raise Conflict(f"Bundle '{found}', which this Idempotency-Key made, is deleted; use a new key.") from None
        return bundle_json(bundle), 201 if bundle.created_at == row.created_at else 200


def _known(services: Services, principal: Principal, digest: str, same: Same) -> Answer | None:
    """The bundle with these bytes, which need no other look then."""
    keep = _keeper(principal, same, services.clock.now())
    try:
        bundle = use_bundle(services.database, principal.project_id, digest, keep)
    except IntegrityError:
        return _lost_race(services, principal, same)
    return None if bundle is None else (bundle_json(bundle), 200)


def _checked(services: Services, upload: Upload, digest: str) -> CheckedBundle:
    return check_bundle(upload.path, upload.name, digest, services.limits.bundles)


def _add(services: Services, principal: Principal, checked: CheckedBundle, same: Same) -> Answer:
    now = services.clock.now()
    try:
        bundle, is_new = add_bundle(
            services.database,
            services.storage,
            checked,
            project_id=principal.project_id,
            user=principal.user,
            now=now,
            also=_keeper(principal, same, now),
        )
    except IntegrityError:
        return _lost_race(services, principal, same)
    except OSError as error:
        log.exception("storage failed")
        raise StorageUnavailable from error
    return bundle_json(bundle), 201 if is_new else 200


def _keeper(principal: Principal, same: Same, now: datetime) -> Also:
    """Keeps which bundle the Idempotency-Key got. A time other than the bundle's own tells that it was there before."""

    def keep(session: Session, bundle_id: str) -> None:
        if same is not None:
            remember(session, principal.key_id, same, bundle_id, now)

    return keep


def _lost_race(services: Services, principal: Principal, same: Same) -> Answer:
    """The answer of another request with the same Idempotency-Key, which was first; call it while that is handled."""
    answer = _earlier(services, principal, same)
    if answer is None:
        raise Conflict("The bundle was uploaded and deleted at the same time by others; send it again.")
    return answer


@router.get("", summary="List bundles", responses={200: {"model": ListView[BundleView]}})
def list_all_bundles(
    request: Request,
    services: ServicesDep,
    principal: PrincipalDep,
    page: BundlePage,
    digest: Annotated[
        str | None, Query(pattern="^[0-9a-f]{64}$", description="Only the bundle with these bytes: SHA-256 in hex.")
    ] = None,
) -> Response:
    """The project's bundles. With `digest` it tells whether an upload is needed at all."""
    with services.database.read() as session:
        rows = list_bundles(
            session,
            principal.project_id,
            digest=digest,
            after=page.after,
            limit=page.fetch,
            descending=page.descending,
        )
    return list_response(request, rows, page.limit, bundle_json, lambda row: row.id)


@router.get(
    "/{bundle_id}",
    summary="Read about a bundle",
    responses={200: {"model": BundleDetail}, **problems("storage_unavailable")},
)
def read_bundle(bundle_id: BundleId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """What it is, and the names of its files."""
    bundle = _find(services, principal, bundle_id)
    try:
        found = bundle_contents(services.storage, bundle)
    except MissingObject:
        raise _no_file(bundle_id) from None
    except OSError as error:
        log.exception("storage failed", key=bundle.storage_key)
        raise StorageUnavailable from error
    return json_response(bundle_with_files(bundle, found))


@router.get(
    "/{bundle_id}/content",
    summary="Download a bundle",
    response_class=Response,
    responses={
        200: {"description": "The file as it was uploaded.", **_FILE},
        206: {"description": "The range that was asked for.", **_FILE},
        304: {"description": "You have it already (`If-None-Match`)."},
        **problems("range_not_satisfiable", "storage_unavailable"),
    },
)
def download_bundle(bundle_id: BundleId, request: Request, services: ServicesDep, principal: PrincipalDep) -> Response:
    """The bytes, as an attachment. `ETag` is the digest; `Range` takes one range."""
    bundle = _find(services, principal, bundle_id)
    unchanged = not_modified(request, bundle.digest)
    if unchanged is not None:
        return unchanged
    name = bundle.name if is_segment(bundle.name) else f"{bundle.id}{'.whl' if bundle.format == 'wheel' else '.zip'}"
    file = Stored(bundle.storage_key, bundle.size_bytes, bundle.digest, _ZIP, name)
    return download(request, services.storage, file, _no_file(bundle_id))


@router.delete(
    "/{bundle_id}",
    status_code=204,
    summary="Delete a bundle",
    openapi_extra=permission(CODE),
    responses=problems("bundle_in_use"),
)
def remove_bundle(bundle_id: BundleId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """Gone for good, unless a job that is not over needs it."""
    delete_bundle(services.database, services.storage, principal.project_id, bundle_id, holders=holders_of)
    return Response(status_code=204)


def _find(services: Services, principal: Principal, bundle_id: str) -> Bundle:
    with services.database.read() as session:
        return get_bundle(session, principal.project_id, bundle_id)


def _no_file(bundle_id: str) -> NotFound:
    return NotFound("file of bundle", bundle_id)
