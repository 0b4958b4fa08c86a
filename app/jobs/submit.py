"""Accepting a job: its rows, its first journal entry and its idempotency key in one transaction.

Nothing is published here: the row itself is what the control loop finds, so a crash after the commit loses nothing.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar

import orjson
from sqlalchemy import func, insert, select
from sqlalchemy.orm import Session

from app import ids
from app.errors import Conflict, TrainshedError
from app.jobs import journal
from app.jobs.models import IdempotencyKey, Job, JobHead, JobTag, JournalRow
from app.jobs.states import JobState
from app.spec import EffectiveSpec


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
class Submission:
    """A checked job, ready to be written. `raw` is the body as it was sent; `idempotency` is (key, SHA-256 hex)."""

    project_id: str
    owner: str
    key_id: str
    raw: bytes
    effective: EffectiveSpec
    effective_json: str
    warnings: list[str]
    dataset_id: str | None
    idempotency: tuple[str, str] | None
    now: datetime
    max_queued: int = 10_000


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
        sqlalchemy.exc.IntegrityError: two requests with one key met on PostgreSQL; look again with `find_replay`.
    """
    earlier = find_replay(session, submission.key_id, submission.idempotency)
    if earlier is not None:
        return SubmitResult(earlier, replayed=True)
    _check_queue(session, submission)
    job_id = ids.new_id("job")
    connection = session.connection()
    connection.execute(insert(Job), [_row(job_id, submission)])
    connection.execute(insert(JobHead), [{"job_id": job_id, "last_seq": 1, "attempt": 0, "closed": False}])
    entry = journal.Entry("state", {"state": JobState.QUEUED.value})
    connection.execute(
        insert(JournalRow),
        [
            {
                "job_id": job_id,
                "seq": 1,
                "attempt": 0,
                "kind": entry.kind,
                "at": submission.now,
                "data": orjson.dumps(entry.data).decode(),
            }
        ],
    )
    if submission.effective.tags:
        tags = submission.effective.tags.items()
        connection.execute(insert(JobTag), [{"job_id": job_id, "key": key, "value": value} for key, value in tags])
    if submission.idempotency is not None:
        connection.execute(insert(IdempotencyKey), [_key_row(job_id, submission, *submission.idempotency)])
    return SubmitResult(job_id, replayed=False)


def _check_queue(session: Session, submission: Submission) -> None:
    # Counts at most limit + 1 index entries, so that a long queue does not slow every submit down.
    waiting = (
        select(Job.id)
        .where(Job.project_id == submission.project_id, Job.state == JobState.QUEUED.value)
        .limit(submission.max_queued + 1)
        .subquery()
    )
    if session.execute(select(func.count()).select_from(waiting)).scalar_one() >= submission.max_queued:
        raise QueueFull(submission.max_queued)


def _row(job_id: str, submission: Submission) -> dict[str, Any]:
    spec = submission.effective
    return {
        "id": job_id,
        "project_id": submission.project_id,
        "owner": submission.owner,
        "key_id": submission.key_id,
        "name": spec.name or "",
        "tags": dict(spec.tags),
        "framework": spec.framework,
        "dataset_id": submission.dataset_id,
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


def _key_row(job_id: str, submission: Submission, key: str, digest: str) -> dict[str, Any]:
    return {
        "principal": submission.key_id,
        "key": key,
        "digest": digest,
        "status": 201,
        "resource_id": job_id,
        "body": "",
        "created_at": submission.now,
    }
