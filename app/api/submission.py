"""From the bytes of a posted spec to a job: everything that is checked before a row is written."""

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

import orjson

from app.accounts.service import Principal
from app.api.bodies import decode
from app.api.code import Found, check_code
from app.api.derivation import Derived, Origin, derive, read_request
from app.api.errors import MalformedJson
from app.api.initialization import check_initialization
from app.api.services import Services
from app.datasets.service import Source, source_schema
from app.errors import Conflict, NotFound
from app.fleet.repository import HostView
from app.jobs.inputs import Needed
from app.jobs.repository import JobRow, get_job
from app.jobs.schemas import job_json
from app.jobs.states import JobState
from app.jobs.submit import Submission, find_replay, parent_columns
from app.scheduling.admission import InsufficientDevices, check_possible, resolve_device_type
from app.scheduling.plan import WaitingJob
from app.spec import (
    AnyEffective,
    AnySpec,
    InvalidSpec,
    JobSpec,
    ScriptSpec,
    TableSchema,
    kind_of,
    parse_spec,
    resolve,
    resolve_script,
)

# What a job is when it has just been accepted; a replayed answer shows it so again, whatever happened since.
_AT_FIRST: Final[dict[str, Any]] = {
    "state": JobState.QUEUED.value,
    "phase": None,
    "stop_requested": None,
    "cause": None,
    "cause_detail": None,
    "progress": None,
    "last_metrics": None,
    "best_metrics": None,
    "attempt": 0,
    "failures": 0,
    "losses": 0,
    "run_s": 0.0,
    "started_at": None,
    "finished_at": None,
}
_MAX_SCHEMAS: Final = 256
_MAX_KEPT: Final = 5_000
"""Columns and labels of a table that is kept in memory; a larger one is read again for each spec."""


@dataclass(frozen=True)
class Checked:
    """A spec that can be accepted, with all that was found out on the way; a script job has no `table`."""

    effective: AnyEffective
    warnings: list[str]
    dataset_id: str | None
    table: TableSchema | None
    hosts: list[HostView]
    waiting: WaitingJob
    inputs: tuple[Needed, ...] = ()


@dataclass(frozen=True)
class Order:
    """A request to create a job, as it came in: a spec, or with `origin` what to change about another job's."""

    principal: Principal
    raw: bytes
    key: str | None
    origin: Origin | None = None

    @property
    def route(self) -> str:
        """Where it was sent; part of what makes two requests the same."""
        return "POST /v1/jobs" + ("" if self.origin is None else f"/{self.origin.job_id}/{self.origin.how}")


@dataclass(frozen=True)
class Created:
    """The answer to a submit: the job as it was accepted."""

    job_id: str
    body: bytes
    replayed: bool


def check(services: Services, principal: Principal, content: object, *, goes_on: bool = False) -> Checked:
    """Check a decoded spec against its data, its bundle and the fleet.

    `goes_on`: the job has a checkpoint to go on from, so it needs no other weights. What `initialize_from` meant when
    they were needed may be gone by now.

    Raises:
        InvalidSpec: every problem, with pointers into `content`.
        CodeNotAllowed: there is code in it, and the key may not bring any.
        InsufficientDevices: no host could ever run it.
    """
    spec = parse_spec(content)
    try:
        found = check_code(services, principal, spec)
        source = None if isinstance(spec, ScriptSpec) else _schema(services, principal, spec)
        try:
            checked = _against_fleet(services, spec, source, found)
        except InsufficientDevices:
            # The fleet that was seen may be a second old; a host that has just come must not cost a refusal.
            services.hosts.forget()
            checked = _against_fleet(services, spec, source, found)
        if not goes_on:
            check_initialization(services, principal, checked.effective, checked.table)
    except InvalidSpec as error:
        raise error.within(content) from None
    return checked


def _against_fleet(services: Services, spec: AnySpec, source: Source | None, found: Found) -> Checked:
    hosts = services.hosts.get()
    choice = resolve_device_type(spec.device_type, hosts)
    effective: AnyEffective
    if isinstance(spec, ScriptSpec):
        dataset_id, table, root = found.dataset_id, None, found.root
        effective = resolve_script(spec, choice.device_type)
    else:
        assert source is not None  # noqa: S101 - a model job has one; this tells the type checker
        dataset_id, table, root = source
        effective = resolve(spec, source.table, choice.device_type)
    waiting = _waiting(services, effective, root)
    check_possible(waiting, hosts)
    warnings = [*found.warnings, *choice.warnings]
    return Checked(effective, warnings, dataset_id, table, hosts, waiting, found.inputs)


def prepare(services: Services, order: Order) -> Submission | Created:
    """The checked job, ready to be written; or at once what the same Idempotency-Key was answered first.

    Raises:
        MalformedJson, InvalidSpec, CodeNotAllowed, InsufficientDevices, IdempotencyMismatch: it cannot be accepted.
        NotFound, StateConflict, InvalidRequest: nor can it be derived from the job that it names.
    """
    content = decode(order.raw) if order.origin is None else read_request(order.raw)
    idempotency = None if order.key is None else (order.key, digest_of(content, order.route))
    if order.origin is not None:
        digest_of(content)  # refuses what is nested too deeply to be written down as a spec
    # Looked for before anything is checked: a repeat must get its answer also when the data or the fleet is gone.
    earlier = find_earlier(services, order.principal, idempotency)
    if earlier is not None:
        return replay(services, order.principal, earlier)
    if order.origin is None:
        derived = Derived(order.raw, content)
    else:
        derived = derive(services, order.principal, order.origin, content)
    goes_on = derived.parent is not None and derived.parent.step is not None
    checked = check(services, order.principal, derived.content, goes_on=goes_on)
    return _submission(services, order, derived, checked, idempotency)


def digest_of(content: object, route: str = "POST /v1/jobs") -> str:
    """What makes two bodies the same: the JSON value, not its spaces or the order of its keys."""
    try:
        canonical = orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError as error:  # it reads 1024 levels and writes 254; no spec has ten
        raise MalformedJson("The body is nested too deeply for a spec.") from error
    return sha256(route.encode() + b"\n" + canonical).hexdigest()


def find_earlier(services: Services, principal: Principal, idempotency: tuple[str, str] | None) -> str | None:
    """The job that the same key made before, if any."""
    if idempotency is None:
        return None
    with services.database.read() as session:
        return find_replay(session, principal.key_id, idempotency)


def _submission(
    services: Services, order: Order, derived: Derived, checked: Checked, idempotency: tuple[str, str] | None
) -> Submission:
    return Submission(
        project_id=order.principal.project_id,
        owner=order.principal.user,
        key_id=order.principal.key_id,
        raw=derived.raw,
        effective=checked.effective,
        effective_json=checked.effective.model_dump_json(),
        warnings=[*derived.warnings, *checked.warnings],
        dataset_id=checked.dataset_id,
        idempotency=idempotency,
        now=services.clock.now(),
        max_queued=services.limits.max_queued_jobs,
        parent=derived.parent,
        inputs=checked.inputs,
    )


def created(job_id: str, submission: Submission) -> Created:
    """The answer for a job that has just been written, without reading it back."""
    spec = submission.effective
    row = JobRow(
        {
            **_AT_FIRST,
            "id": job_id,
            "kind": kind_of(spec),
            "name": spec.name or "",
            "tags": orjson.dumps(spec.tags).decode(),
            "framework": spec.framework,
            "spec": submission.raw.decode(),
            "effective_spec": submission.effective_json,
            "warnings": orjson.dumps(submission.warnings).decode(),
            "device_count": spec.device_count,
            "device_type": spec.device_type,
            "priority": spec.priority,
            "owner": submission.owner,
            "dataset_id": submission.dataset_id,
            **parent_columns(submission.parent),
            "not_before": spec.not_before,
            "created_at": submission.now,
            "queued_at": submission.now,
        }
    )
    return Created(job_id, orjson.dumps(job_json(row)), replayed=False)


def replay(services: Services, principal: Principal, job_id: str) -> Created:
    """The first answer again."""
    with services.database.read() as session:
        try:
            now = get_job(session, principal.project_id, job_id)
        except NotFound:
            raise Conflict(f"Job '{job_id}', which this Idempotency-Key made, is deleted; use a new key.") from None
    row = JobRow({**now.values, **_AT_FIRST, "queued_at": now.created_at})
    return Created(job_id, orjson.dumps(job_json(row)), replayed=True)


def _schema(services: Services, principal: Principal, spec: JobSpec) -> Source:
    """The table's schema, kept: data sets never change, and one that was deleted fails at the insert."""
    key = (principal.project_id, spec.data.source)
    known = services.schemas.get(key)
    if known is not None:
        return known
    with services.database.read() as session:
        found = source_schema(session, principal.project_id, spec.data.source)
    if sum(1 + len(column.labels or ()) for column in found.table.columns) > _MAX_KEPT:
        return found
    if len(services.schemas) >= _MAX_SCHEMAS:
        services.schemas.clear()
    services.schemas[key] = found
    return found


def _waiting(services: Services, spec: AnyEffective, data_root: str | None) -> WaitingJob:
    return WaitingJob(
        id="",
        framework=spec.framework,
        device_type=spec.device_type,
        device_count=spec.device_count,
        priority=spec.priority,
        queued_at=services.clock.now(),
        not_before=spec.not_before,
        min_device_memory_bytes=spec.min_device_memory_bytes,
        device_name=spec.device_name,
        data_root=data_root,
    )
