"""What a job can be asked for: to stop, to go on, and to be made again."""

from collections.abc import Callable
from datetime import datetime
from typing import Any

from fastapi import Request, Response
from pydantic import BaseModel
from sqlalchemy.orm import Session

from app.accounts.service import Principal
from app.api.bodies import json_response
from app.api.derivation import CloneRequest, How, Origin, RetryRequest
from app.api.filters import IdempotencyKey, JobId
from app.api.jobs import CREATED, SPEC_CODES, answer_created
from app.api.openapi import problems
from app.api.routing import api_router
from app.api.services import PrincipalDep, Services, ServicesDep
from app.api.submission import Order
from app.api.views import JobView
from app.broker import CHANNEL_JOURNAL, CHANNEL_WANTED
from app.jobs.repository import get_job
from app.jobs.schemas import job_json
from app.jobs.stops import StopOutcome, request_cancel, request_pause, request_resume

router = api_router(prefix="/v1/jobs/{job_id}", tag="Jobs")

Ask = Callable[[Session, str, str, datetime], StopOutcome]


def _steps(done: str, under_way: str) -> dict[int | str, dict[str, Any]]:
    """The answers of a route that asks a job to become something: it is so already, or is on its way."""
    return {
        200: {"model": JobView, "description": done},
        202: {"model": JobView, "description": under_way},
        **problems("state_conflict"),
    }


def _optional(model: type[BaseModel]) -> dict[str, Any]:
    """`openapi_extra` of a route that can do without its body."""
    return {"requestBody": {"required": False, "content": {"application/json": {"schema": model.model_json_schema()}}}}


@router.post(
    "/cancel",
    summary="Cancel a job",
    responses=_steps("It is cancelled.", "It stops at its next safe point, and is certain to end `cancelled`."),
)
def cancel_job(job_id: JobId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """A waiting job is cancelled at once, an active one at its next safe point. Asking again is harmless."""
    return _ask(services, principal, job_id, request_cancel)


@router.post(
    "/pause",
    summary="Pause a job",
    responses=_steps("It is paused.", "It writes a checkpoint at its next safe point and gives its devices back."),
)
def pause_job(job_id: JobId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """A waiting job is paused at once, an active one with a checkpoint. One that is done before that has succeeded."""
    return _ask(services, principal, job_id, request_pause)


@router.post(
    "/resume",
    summary="Let a paused job go on",
    responses=_steps("There was nothing to do: it is not paused.", "It is queued, or its pause was taken back."),
)
def resume_job(job_id: JobId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """The job waits at its old place, and goes on from its last checkpoint. Asking again is harmless."""
    return _ask(services, principal, job_id, request_resume)


def _ask(services: Services, principal: Principal, job_id: str, ask: Ask) -> Response:
    with services.database.write() as session:
        outcome = ask(session, principal.project_id, job_id, services.database.now(session))
        done = outcome.done
        job = get_job(session, principal.project_id, job_id)
    services.bell.ring(CHANNEL_WANTED)
    services.bell.ring(CHANNEL_JOURNAL, job_id)
    return json_response(job_json(job), status=200 if done else 202)


_CREATED = CREATED | problems(*SPEC_CODES, "invalid_request", "idempotency_mismatch", "queue_full", "state_conflict")


@router.post(
    "/retry",
    status_code=201,
    summary="Try a failed or cancelled job again",
    openapi_extra=_optional(RetryRequest),
    responses=_CREATED,
)
async def retry_job(
    job_id: JobId, request: Request, principal: PrincipalDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """A new job with the same spec, which goes on from a checkpoint of this one and has its whole `timeout_s` again."""
    return await _make(request, principal, job_id, "retry", idempotency_key)


@router.post(
    "/clone",
    status_code=201,
    summary="Make a new job from a job's spec",
    openapi_extra=_optional(CloneRequest),
    responses=_CREATED,
)
async def clone_job(
    job_id: JobId, request: Request, principal: PrincipalDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """A new job with this one's spec, with the changes that the body asks for; it trains from the beginning."""
    return await _make(request, principal, job_id, "clone", idempotency_key)


async def _make(request: Request, principal: Principal, job_id: str, how: How, key: str | None) -> Response:
    return await answer_created(request, Order(principal, await request.body(), key, Origin(job_id, how)))
