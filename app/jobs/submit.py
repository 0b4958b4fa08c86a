"""Accepting a job: its rows, its first journal entry and its idempotency key in one transaction.

Nothing is published here: the row itself is what the control loop finds, so a crash after the commit loses nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Literal

import orjson
from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from app import ids, metering
from app.db import Base
from app.errors import Conflict, NotFound, TrainshedError
from app.jobs.inputs import Needed, hold_inputs
from app.jobs.models import IdempotencyKey, Job, JobHead, JobInput, JobTag, JournalRow
from app.jobs.states import JobState
from app.spec import AnyEffective, EffectiveScriptSpec, kind_of

_QUEUED: Final = orjson.dumps({"state": JobState.QUEUED.value}).decode()


class IdempotencyMismatch(TrainshedError):
    """The same Idempotency-Key came with another body."""

    code: ClassVar[str] = "idempotency_mismatch"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"Idempotency-Key '{key}' was used before with another body. Send the same body again, or a new key, "
            "for example a fresh UUID."
        )
        self.key = key


class QueueFull(Conflict):
    """So many jobs of this project wait already that another one is refused for now."""

    code: ClassVar[str] = "queue_full"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} jobs of this project wait already; cancel some, or try again later.")
        self.limit = limit


@dataclass(frozen=True)
class Parent:
    """The job that a new one was made from, and how; `step` is the checkpoint of it that the new one goes on from."""

    job_id: str
    how: Literal["retry", "clone"]
    step: int | None = None


@dataclass(frozen=True)
class Submission:
    """A checked job, ready to be written. `raw` is the spec as it was sent; `idempotency` is (key, SHA-256 hex).

    `inputs`: the bundle and the data sets of a script, besides `dataset_id`.
    """

    project_id: str
    owner: str
    key_id: str
    raw: bytes
    effective: AnyEffective
    effective_json: str
    warnings: list[str]
    dataset_id: str | None
    idempotency: tuple[str, str] | None
    now: datetime
    max_queued: int = 10_000
    parent: Parent | None = None
    inputs: tuple[Needed, ...] = ()


@dataclass(frozen=True)
class SubmitResult:
    """The id of the job; `replayed` when an earlier request with the same key made it."""

    job_id: str
    replayed: bool


def find_replay(session: Session, principal: str, idempotency: tuple[str, str] | None) -> str | None:
    """The job that the same key made before.

    Raises:
        IdempotencyMismatch: the key was used with another body.
    """
    if idempotency is None:
        return None
    key, digest = idempotency
    row = session.execute(
        select(IdempotencyKey.digest, IdempotencyKey.resource_id).where(
            IdempotencyKey.principal == principal, IdempotencyKey.key == key
        )
    ).one_or_none()
    if row is None:
        return None
    if row.digest != digest:
        raise IdempotencyMismatch(key)
    return str(row.resource_id)


def submit(session: Session, submission: Submission) -> SubmitResult:
    """Write the job, `queued`, or find the one that the same Idempotency-Key made.

    Raises:
        IdempotencyMismatch: the key was used with another body.
        QueueFull: the project has too many waiting jobs.
        InvalidSpec: a bundle or data set that it needs was deleted meanwhile.
        sqlalchemy.exc.IntegrityError: two requests with one key met on PostgreSQL; look again with `find_replay`.
    """
    (result,) = submit_all(session, [submission])
    if isinstance(result, TrainshedError):
        raise result
    return result


def submit_all(session: Session, submissions: Sequence[Submission]) -> list[SubmitResult | TrainshedError]:
    """Accept several jobs in one transaction, each or its refusal by itself, with one insert per table for all.

    Raises:
        sqlalchemy.exc.IntegrityError: as `submit`; then none of them was written.
    """
    group = _Group(session)
    results = [group.add(submission) for submission in submissions]
    group.write()
    return results


class _Group:
    """Jobs that are accepted together: what one adds counts for those behind it."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._room: dict[str, int] = {}
        self._keys: dict[tuple[str, str], tuple[str, str]] = {}
        self._rows: dict[type[Base], list[dict[str, Any]]] = {
            table: [] for table in (Job, JobHead, JournalRow, JobTag, JobInput, IdempotencyKey)
        }

    def add(self, submission: Submission) -> SubmitResult | TrainshedError:
        try:
            earlier = self._earlier(submission)
            if earlier is not None:
                return SubmitResult(earlier, replayed=True)
            self._hold_sources(submission)
            self._take_place(submission)
        except TrainshedError as error:
            return error
        return SubmitResult(self._accept(submission), replayed=False)

    def write(self) -> None:
        connection = self._session.connection()
        for table, rows in self._rows.items():
            if rows:
                connection.execute(insert(table), rows)
        frameworks = [row["framework"] for row in self._rows[Job]]
        if frameworks:
            metering.on_commit(self._session, lambda: _count(frameworks))

    def _earlier(self, submission: Submission) -> str | None:
        if submission.idempotency is None:
            return None
        key, digest = submission.idempotency
        beside = self._keys.get((submission.key_id, key))
        if beside is None:
            return find_replay(self._session, submission.key_id, submission.idempotency)
        if beside[0] != digest:
            raise IdempotencyMismatch(key)
        return beside[1]

    def _hold_sources(self, submission: Submission) -> None:
        """What this job will read must be there; and stay, since a deletion waits for the row.

        That is: the jobs whose checkpoints it goes on from or starts from, its bundle, and the data sets of a script.
        """
        parent, spec = submission.parent, submission.effective
        source = None if isinstance(spec, EffectiveScriptSpec) else spec.initialize_from
        wanted = {parent.job_id} if parent is not None and parent.step is not None else set()
        wanted |= {source.job} if source is not None else set()
        for job_id in sorted(wanted):
            query = select(Job.id).where(Job.id == job_id).with_for_update(read=True)
            if self._session.execute(query).scalar() is None:
                raise NotFound("job", job_id)
        hold_inputs(self._session, submission.project_id, submission.inputs)

    def _take_place(self, submission: Submission) -> None:
        project_id, limit = submission.project_id, submission.max_queued
        if project_id not in self._room:
            self._room[project_id] = limit - _waiting(self._session, project_id, limit)
        if self._room[project_id] <= 0:
            raise QueueFull(limit)
        self._room[project_id] -= 1

    def _accept(self, submission: Submission) -> str:
        job_id = ids.new_id("job")
        self._rows[Job].append(_row(job_id, submission))
        self._rows[JobHead].append({"job_id": job_id, "last_seq": 1, "attempt": 0, "closed": False})
        self._rows[JournalRow].append(
            {"job_id": job_id, "seq": 1, "attempt": 0, "kind": "state", "at": submission.now, "data": _QUEUED}
        )
        for key, value in submission.effective.tags.items():
            self._rows[JobTag].append({"job_id": job_id, "key": key, "value": value})
        for resource_id in sorted({one.resource_id for one in submission.inputs}):
            self._rows[JobInput].append({"job_id": job_id, "resource_id": resource_id})
        if submission.idempotency is not None:
            key, digest = submission.idempotency
            self._keys[submission.key_id, key] = (digest, job_id)
            self._rows[IdempotencyKey].append(_key_row(job_id, submission, key, digest))
        return job_id


def _count(frameworks: Sequence[str]) -> None:
    for framework in frameworks:
        metering.jobs_submitted.labels(framework).inc()


def _waiting(session: Session, project_id: str, limit: int) -> int:
    """How many jobs of the project wait, counted no further than `limit`, so that a long queue slows nobody down."""
    waiting = (
        select(Job.id).where(Job.project_id == project_id, Job.state == JobState.QUEUED.value).limit(limit).subquery()
    )
    return session.execute(select(func.count()).select_from(waiting)).scalar_one()


def _row(job_id: str, submission: Submission) -> dict[str, Any]:
    spec = submission.effective
    return {
        "id": job_id,
        "project_id": submission.project_id,
        "owner": submission.owner,
        "key_id": submission.key_id,
        "kind": kind_of(spec),
        "name": spec.name or "",
        "tags": dict(spec.tags),
        "framework": spec.framework,
        "dataset_id": submission.dataset_id,
        **parent_columns(submission.parent),
        "state": JobState.QUEUED.value,
        "attempt": 0,
        "failures": 0,
        "losses": 0,
        "spec": submission.raw.decode(),
        "effective_spec": orjson.Fragment(submission.effective_json),
        "warnings": submission.warnings,
        "device_count": spec.device_count,
        "device_type": spec.device_type,
        "min_device_memory_bytes": spec.min_device_memory_bytes,
        "device_name": spec.device_name,
        "retry_failures": spec.retry.failures,
        "retry_losses": spec.retry.losses,
        "timeout_s": spec.timeout_s,
        "priority": spec.priority,
        "not_before": spec.not_before,
        "run_s": 0.0,
        "created_at": submission.now,
        "queued_at": submission.now,
    }


def parent_columns(parent: Parent | None) -> dict[str, Any]:
    """The columns of a job that say what it was made from."""
    return {
        "parent_job_id": None if parent is None else parent.job_id,
        "parent_how": None if parent is None else parent.how,
        "parent_step": None if parent is None else parent.step,
    }


def _key_row(job_id: str, submission: Submission, key: str, digest: str) -> dict[str, Any]:
    return {
        "principal": submission.key_id,
        "key": key,
        "digest": digest,
        "resource_id": job_id,
        "created_at": submission.now,
    }
