"""Jobs: submit, check, list, read."""

from collections.abc import Sequence
from typing import Any, Final

from anyio.to_thread import run_sync
from fastapi import Request, Response

from app.accounts.service import Role
from app.api.bodies import decode, json_response
from app.api.filters import IdempotencyKey, JobFilterDep, JobId
from app.api.job_examples import job_examples
from app.api.openapi import json_body, problems
from app.api.paging import JobPage, list_response
from app.api.routing import api_router, role
from app.api.services import PrincipalDep, Services, ServicesDep
from app.api.submission import Checked, Order, check
from app.api.submitter import Submitter
from app.api.views import AttemptView, JobDetailView, JobView, ListView, ValidationView
from app.datasets.service import data_root
from app.fleet.repository import HostView
from app.holds.repository import told
from app.jobs.repository import JobRow, active_ids, attempts_of, get_job, list_jobs
from app.jobs.schemas import attempt_json, job_json
from app.jobs.states import JobState
from app.scheduling.explain import Waiting, explain
from app.scheduling.plan import WaitingJob
from app.scheduling.queue import waiting_of
from app.spec import EffectiveScriptSpec, Summary, kind_of, summarise
from app.usage.jobs import usage_of

router = api_router(prefix="/v1/jobs", tag="Jobs")

_BODY = json_body(("JobSpec", "ScriptSpec"), job_examples())
SPEC_CODES: Final = (
    "malformed_json",
    "invalid_spec",
    "not_enabled",
    "insufficient_devices",
    "code_not_allowed",
    "storage_unavailable",
)
CREATED: Final[dict[int | str, dict[str, Any]]] = {
    201: {
        "model": JobView,
        "description": "The job, queued. A repeat with the same Idempotency-Key gets it again.",
        "headers": {
            "Location": {"schema": {"type": "string"}, "description": "The job's address."},
            "Idempotency-Replayed": {"schema": {"type": "string"}, "description": "`true` on a repeat."},
        },
    },
}


@router.post(
    "",
    status_code=201,
    summary="Submit a job",
    openapi_extra=_BODY,
    responses={**CREATED, **problems(*SPEC_CODES, "idempotency_mismatch", "queue_full")},
)
async def create_job(request: Request, principal: PrincipalDep, idempotency_key: IdempotencyKey = None) -> Response:
    """Check the spec against its data and the fleet, and accept it; or name everything that is wrong with it.

    With the key `script` it is a script job: a command of yours. Code of yours needs a key with the permission `code`.

    The answer comes when the job is in the database, whether or not Redis or a worker is there.
    """
    return await answer_created(request, Order(principal, await request.body(), idempotency_key))


async def answer_created(request: Request, order: Order) -> Response:
    """201 and the job, which is in the database then."""
    submitter: Submitter = request.app.state.submitter
    created = await submitter.create(order)
    headers = {"Location": f"/v1/jobs/{created.job_id}"}
    if created.replayed:
        headers["Idempotency-Replayed"] = "true"
    return Response(created.body, status_code=201, headers=headers, media_type="application/json")


@router.post(
    "/validate",
    summary="Check a spec without submitting it",
    openapi_extra=_BODY | role(Role.VIEWER),
    responses={200: {"model": ValidationView}, **problems(*SPEC_CODES)},
)
async def validate_job(request: Request, services: ServicesDep, principal: PrincipalDep) -> Response:
    """The effective spec, layer shapes, parameters, rows, steps, a memory estimate, and what would happen now."""
    raw = await request.body()

    def answer() -> dict[str, Any]:
        checked = check(services, principal, decode(raw))
        now = _explain(services, principal.project_id, checked.waiting, checked.hosts)
        return {
            "object": "validation",
            "kind": kind_of(checked.effective),
            "effective_spec": checked.effective.model_dump(mode="json"),
            "warnings": checked.warnings,
            **_summary(checked),
            "now": now.as_json(),
        }

    return json_response(await run_sync(answer))


def _summary(checked: Checked) -> dict[str, Any]:
    """What the model of a job will be; a script's is nobody's business but its own."""
    if checked.table is None or isinstance(checked.effective, EffectiveScriptSpec):
        return {**dict.fromkeys(Summary.model_fields), "layers": []}
    return summarise(checked.effective, checked.table).model_dump(mode="json")


@router.get("", summary="List jobs", responses={200: {"model": ListView[JobView]}})
def list_all(
    request: Request, services: ServicesDep, principal: PrincipalDep, page: JobPage, wanted: JobFilterDep
) -> Response:
    """A page of the project's jobs, each with its progress and its last and best metrics."""
    with services.database.read() as session:
        rows = list_jobs(
            session, principal.project_id, wanted, after=page.after, limit=page.fetch, descending=page.descending
        )
    return list_response(request, rows, page.limit, job_json, lambda row: str(row.id))


@router.get("/{job_id}", summary="Read a job", responses={200: {"model": JobDetailView}})
def read_job(job_id: JobId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """The job with its attempts and what they have used; while it is queued, also why it waits."""
    with services.database.read() as session:
        job = get_job(session, principal.project_id, job_id)
        attempts = attempts_of(session, job_id)
    usage = usage_of(attempts, services.clock.now())
    return json_response(job_json(job, attempts, waiting_reason(services, job), usage))


def waiting_reason(services: Services, job: JobRow) -> dict[str, object] | None:
    if job.state != JobState.QUEUED.value:
        return None
    with services.database.read() as session:
        root = data_root(session, job.dataset_id)
    return _explain(services, job.project_id, waiting_of(job, root), services.hosts.get()).as_json()


def _explain(services: Services, project_id: str, job: WaitingJob, hosts: Sequence[HostView]) -> Waiting:
    """Why the job waits; jobs of other projects that hold devices are counted, never named."""
    with services.database.read() as session:
        visible, holders = active_ids(session, project_id), told(session, project_id)
    return explain(job, services.queue.get(), hosts, services.clock.now(), visible=visible, holders=holders)


@router.get("/{job_id}/attempts", summary="List a job's attempts", responses={200: {"model": ListView[AttemptView]}})
def list_attempts(job_id: JobId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """Every try, oldest first: worker, devices, start, end, cause, exit code or signal."""
    with services.database.read() as session:
        get_job(session, principal.project_id, job_id)
        attempts = attempts_of(session, job_id)
    data = [attempt_json(attempt, nodes) for attempt, nodes in attempts]
    return json_response({"object": "list", "data": data, "has_more": False, "next_after": None})
