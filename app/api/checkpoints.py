"""Checkpoints of a job: what there is, and one of them as an archive."""

from contextlib import ExitStack
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from fastapi import Path, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import Field

from app.api.archives import Member, zip_chunks
from app.api.downloads import not_modified, open_stored
from app.api.filters import JobId
from app.api.openapi import problems
from app.api.paging import Limit, Order, list_response
from app.api.routing import api_router
from app.api.services import PrincipalDep, Services, ServicesDep
from app.api.views import View
from app.checkpoints.models import Checkpoint
from app.checkpoints.repository import CheckpointFacts, get_checkpoint, list_checkpoints, marks
from app.checkpoints.schemas import checkpoint_json
from app.errors import NotFound
from app.jobs.repository import get_job

router = api_router(prefix="/v1/jobs/{job_id}/checkpoints", tag="Jobs")

_LARGEST: Final = 2**63 - 1
Step = Annotated[int, Path(ge=0, le=_LARGEST, description="The checkpoint's step.")]
After = Annotated[int | None, Query(ge=0, le=_LARGEST, description="The step of the last row you have.")]


class CheckpointFile(View):
    name: str
    size_bytes: int
    digest: str = Field(description="SHA-256 of the content, in hex.")


class CheckpointView(View):
    """A complete checkpoint: weights, optimizer and position of the training after `step` steps."""

    object: Literal["checkpoint"]
    job_id: str
    step: int
    epoch: int = Field(description="Complete epochs.")
    attempt: int
    reason: Literal["periodic", "best", "stop", "final"]
    best: bool = Field(description="The best so far, by what early stopping watches, else by the validation loss.")
    last: bool = Field(description="The newest: where the job would go on.")
    final: bool = Field(description="Written when the training was finished.")
    metrics: dict[str, Any]
    size_bytes: int
    files: list[CheckpointFile]
    created_at: datetime


class CheckpointPage(View):
    object: Literal["list"]
    data: list[CheckpointView]
    has_more: bool
    next_after: int | None


@router.get("", summary="List a job's checkpoints", responses={200: {"model": CheckpointPage}})
def list_job_checkpoints(
    job_id: JobId,
    request: Request,
    services: ServicesDep,
    principal: PrincipalDep,
    limit: Limit = 50,
    after: After = None,
    order: Order = "desc",
) -> Response:
    """Those that are kept, by step: the newest two, the best, the final one, and each that the spec asked for."""
    with services.database.read() as session:
        get_job(session, principal.project_id, job_id)
        descending = order == "desc"
        rows = list_checkpoints(session, job_id, after=after, limit=limit + 1, descending=descending)
        known = marks(session, job_id)
    return list_response(request, rows, limit, lambda row: checkpoint_json(row, known), lambda row: row.step)


@router.get(
    "/{step}/content",
    summary="Download a checkpoint",
    response_class=Response,
    responses={
        200: {
            "description": "A ZIP archive of its files.",
            "content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}},
        },
        304: {"description": "You have it already (`If-None-Match`)."},
        **problems("storage_unavailable"),
    },
)
def download_checkpoint(
    job_id: JobId, step: Step, request: Request, services: ServicesDep, principal: PrincipalDep
) -> Response:
    """The files, uncompressed: weights and optimizer as safetensors, the position as JSON, and a manifest of them."""
    with services.database.read() as session:
        get_job(session, principal.project_id, job_id)
        checkpoint = get_checkpoint(session, job_id, step)
    facts = CheckpointFacts.of(checkpoint)
    digest = facts.files[-1].digest  # the manifest's, which has those of all others
    unchanged = not_modified(request, digest)
    if unchanged is not None:
        return unchanged
    return StreamingResponse(
        zip_chunks(_open(services, facts), checkpoint.created_at),
        media_type="application/zip",
        headers={
            "ETag": f'"{digest}"',
            "Cache-Control": "private, no-cache",
            "Content-Disposition": f'attachment; filename="{_name(checkpoint)}"',
        },
    )


def _open(services: Services, facts: CheckpointFacts) -> list[Member]:
    """Every file open before the first byte is sent: of this host, one that is deleted meanwhile is read to its end."""
    missing = NotFound("checkpoint of step", str(facts.step))
    with ExitStack() as opened:
        members = []
        for file, key in zip(facts.files, facts.keys, strict=True):
            source = opened.enter_context(open_stored(services.storage, key, missing))
            members.append(Member(file.name, source, file.size_bytes))
        opened.pop_all()
        return members


def _name(checkpoint: Checkpoint) -> str:
    return f"{checkpoint.job_id}-step-{checkpoint.step}.zip"
