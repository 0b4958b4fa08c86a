"""What a job made: its stored files."""

from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import Path, Request, Response

from app.accounts.service import Principal
from app.api.bodies import json_response
from app.api.downloads import Stored, download, not_modified
from app.api.errors import NoSuchArtifact
from app.api.filters import JobId
from app.api.openapi import problems
from app.api.routing import api_router
from app.api.services import PrincipalDep, Services, ServicesDep
from app.api.views import ArtifactView, ListView
from app.artifacts.models import Artifact
from app.artifacts.repository import get_artifact, list_artifacts
from app.artifacts.schemas import artifact_json
from app.errors import NotFound
from app.jobs.repository import get_job

router = api_router(prefix="/v1/jobs/{job_id}/artifacts", tag="Jobs")

# Takes slashes too, so that whatever is no name gets the same answer as a name that no file has.
Name = Annotated[str, Path(description="The file's name, one path segment.")]
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_FILE = {"application/octet-stream": _BINARY, "application/json": {}}


@router.get("", summary="List a job's files", responses={200: {"model": ListView[ArtifactView]}})
def list_job_artifacts(job_id: JobId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """The model and the reports that the job stored, by name."""
    with services.database.read() as session:
        get_job(session, principal.project_id, job_id)
        data = [artifact_json(artifact) for artifact in list_artifacts(session, job_id)]
    return json_response({"object": "list", "data": data, "has_more": False, "next_after": None})


@router.get(
    "/{name:path}",
    summary="Download a file",
    response_class=Response,
    responses={
        200: {"description": "The file.", "content": _FILE},
        206: {"description": "The range that was asked for.", "content": _FILE},
        304: {"description": "You have it already (`If-None-Match`)."},
        **problems("range_not_satisfiable"),
    },
)
async def download_artifact(
    job_id: JobId, name: Name, request: Request, services: ServicesDep, principal: PrincipalDep
) -> Response:
    """The bytes, as an attachment. `ETag` is the SHA-256 of the content; `Range` takes one range."""
    return await _download(job_id, name, request, services, principal)


@router.head("/{name:path}", include_in_schema=False)
async def head_artifact(
    job_id: JobId, name: Name, request: Request, services: ServicesDep, principal: PrincipalDep
) -> Response:
    return await _download(job_id, name, request, services, principal)


async def _download(job_id: str, name: str, request: Request, services: Services, principal: Principal) -> Response:
    artifact = await run_sync(_find, services, principal, job_id, name)
    unchanged = not_modified(request, artifact.digest)
    if unchanged is not None:
        return unchanged
    file = Stored(artifact.storage_key, artifact.size_bytes, artifact.digest, artifact.media_type, artifact.name)
    return await run_sync(download, request, services.storage, file, NoSuchArtifact())


def _find(services: Services, principal: Principal, job_id: str, name: str) -> Artifact:
    with services.database.read() as session:
        get_job(session, principal.project_id, job_id)
        try:
            return get_artifact(session, job_id, name)
        except NotFound:
            raise NoSuchArtifact from None
