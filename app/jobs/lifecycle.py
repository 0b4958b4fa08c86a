"""The one function that moves a job: a guarded update and its journal entry in one transaction.

Lock order everywhere: job, head, attempt, leases by device id.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.jobs import journal
from app.jobs.models import Job
from app.jobs.states import JobState, sources_of
from app.metering import NO_CAUSE, job_duration, job_run_duration, jobs_finished, on_commit, queue_wait


def lock_job(session: Session, job_id: str) -> Job | None:
    """The job's row, locked until the transaction ends (SQLite: the transaction itself is the lock)."""
    return session.execute(
        select(Job).where(Job.id == job_id).with_for_update().execution_options(populate_existing=True)
    ).scalar()


def hold_job(session: Session, job_id: str) -> None:
    """Take the lock of the job's row without reading the row: for those who write only what comes after it in order."""
    session.execute(select(Job.id).where(Job.id == job_id).with_for_update())


def move(
    session: Session,
    job_id: str,
    target: JobState,
    *,
    attempt: int,
    now: datetime,
    facts: Mapping[str, Any] | None = None,
    fields: Mapping[str, Any] | None = None,
    sources: Iterable[JobState] | None = None,
    next_attempt: int | None = None,
) -> bool:
    """Move the job to `target` and journal it; False when the writer is stale, and then nothing is changed.

    Args:
        session: a writing session.
        job_id: the job.
        target: the new state; the old one must be a legal source of it.
        attempt: the fence, which must be the job's current attempt number.
        now: the time that is journaled.
        facts: what the journal entry says besides the state.
        fields: other columns of the job to write in the same update.
        sources: narrows the legal old states further.
        next_attempt: the number to raise the fence to (a placement).
    """
    legal = sources_of(target) if sources is None else sources_of(target) & frozenset(sources)
    values: dict[str, Any] = {"state": target.value, **(fields or {})}
    if target.is_final:
        values.setdefault("finished_at", now)
    if next_attempt is not None:
        values["attempt"] = next_attempt
    moved = session.execute(
        update(Job)
        .where(Job.id == job_id, Job.attempt == attempt, Job.state.in_([state.value for state in legal]))
        .values(**values)
        .returning(Job.framework, Job.created_at, Job.queued_at, Job.not_before, Job.run_s, Job.cause)
        .execution_options(synchronize_session=False)
    ).one_or_none()
    if moved is None:
        return False
    entry = journal.Entry("state", {"state": target.value, **{k: v for k, v in (facts or {}).items() if v is not None}})
    last = journal.append(session, job_id, attempt, [entry], now, close=target.is_final, raise_fence_to=next_attempt)
    if last is None:
        raise JournalMismatchError(job_id, attempt)
    if target.is_final:
        took_s = max(0.0, (now - moved.created_at).total_seconds())
        on_commit(session, partial(_count_end, moved.framework, target, moved.cause, took_s, moved.run_s))
    elif next_attempt == 1:
        could_start = max(moved.queued_at, moved.not_before or moved.queued_at)
        on_commit(session, partial(queue_wait.observe, max(0.0, (now - could_start).total_seconds())))
    return True


def _count_end(framework: str, state: JobState, cause: str | None, took_s: float, run_s: float) -> None:
    jobs_finished.labels(framework, state.value, cause or NO_CAUSE).inc()
    job_duration.labels(framework, state.value).observe(took_s)
    job_run_duration.labels(framework, state.value).observe(run_s)


class JournalMismatchError(RuntimeError):
    """The job and its journal head disagree about the attempt: a fault of this code, never of a caller."""

    def __init__(self, job_id: str, attempt: int) -> None:
        super().__init__(f"job {job_id} moved as attempt {attempt}, but its journal head does not know that attempt")
