"""How an attempt ends, and what its end makes of the job: done, failed, cancelled, paused, or another try."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from app import metering
from app.errors import Cause
from app.jobs.causes import CAUSES, Budget
from app.jobs.charging import give_back
from app.jobs.lifecycle import lock_job, move
from app.jobs.models import Attempt, Job
from app.jobs.states import ACTIVE, JobState, StopRequest

_MAX_BACKOFF_S: Final = 60.0
_UNCLAIMED_FREE: Final = 3
_DETAIL_CHARACTERS: Final = 4000


@dataclass(frozen=True)
class Ending:
    """How an attempt ended; `cause` is None only when it succeeded or left because it was asked to."""

    succeeded: bool
    cause: Cause | None = None
    detail: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    max_rss_bytes: int | None = None
    final_metrics: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Verdict:
    """What becomes of the job, and which counters grow."""

    state: JobState
    cause: Cause | None
    failures: int
    losses: int
    wait_s: float = 0.0


def judge(job: Job, ending: Ending) -> Verdict:
    """Decide by the stop request first, then by success, then by the budget of the cause.

    An accepted cancel always ends `cancelled`, even when training had just finished; a pause never undoes a success. An
    attempt that left because it was asked to, when the request has been taken back meanwhile, is simply tried again.
    """
    stop = StopRequest(job.stop_requested) if job.stop_requested else None
    if stop is StopRequest.CANCEL:
        return Verdict(JobState.CANCELLED, None, job.failures, job.losses)
    if ending.succeeded:
        return Verdict(JobState.SUCCEEDED, None, job.failures, job.losses)
    if stop is StopRequest.PAUSE:
        return Verdict(JobState.PAUSED, None, job.failures, job.losses)
    if ending.cause is None:
        return Verdict(JobState.QUEUED, None, job.failures, job.losses)
    return _by_budget(job, ending.cause)


def _by_budget(job: Job, cause: Cause) -> Verdict:
    budget = CAUSES[cause].budget
    failures, losses = job.failures, job.losses
    if cause is Cause.TIMED_OUT:
        # The limit is one for all attempts together: another try would have no time left. `retry` makes a new job,
        # with a limit of its own, from the last checkpoint.
        return Verdict(JobState.FAILED, cause, failures + 1, losses)
    if budget is Budget.NONE:
        return Verdict(JobState.QUEUED, cause, failures, losses)
    if budget is Budget.FAILURES:
        failures += 1
        spent, allowed = failures, job.retry_failures
    else:
        losses += 1
        spent, allowed = losses, job.retry_losses
    if spent > allowed:
        return Verdict(JobState.FAILED, cause, failures, losses)
    return Verdict(JobState.QUEUED, cause, failures, losses, _pause_s(spent))


def _pause_s(time: int) -> float:
    """How long a job waits before it is tried again: 0, 2, 4, 8 … 60 s."""
    return 0.0 if time <= 1 else min(2.0 ** (time - 1), _MAX_BACKOFF_S)


def end_attempt(session: Session, job_id: str, attempt: int, ending: Ending, now: datetime) -> JobState | None:
    """End the attempt, free its devices and move the job on; None when the writer is stale (devices are freed anyway).

    A job that goes back to the queue keeps its place (`queued_at`); from the second try of one budget on it waits
    2, 4, 8 … 60 s before it may start. So does one that no worker took three times: whatever keeps it from being
    claimed would otherwise keep its devices from everybody behind it.
    """
    job = lock_job(session, job_id)
    if job is None or job.attempt != attempt or JobState(job.state) not in ACTIVE:
        metering.fenced_writes.inc()
        give_back(session, job_id, attempt, now)
        return None
    verdict = judge(job, ending)
    started_at = _close_attempt(session, job_id, attempt, ending, now)
    fields: dict[str, Any] = {
        "phase": None,
        "cause": verdict.cause.value if verdict.cause and verdict.state is JobState.FAILED else None,
        "cause_detail": _detail(verdict, ending) if verdict.state is JobState.FAILED else None,
        "failures": verdict.failures,
        "losses": verdict.losses,
        # A clock that was set back must not give time back.
        "run_s": job.run_s + (max(0.0, (now - started_at).total_seconds()) if started_at else 0.0),
    }
    if verdict.state is JobState.QUEUED:
        wait_s = verdict.wait_s or _unclaimed_pause_s(session, job_id, verdict.cause)
        fields["not_before"] = now + timedelta(seconds=wait_s) if wait_s else job.not_before
    if verdict.state in (JobState.QUEUED, JobState.PAUSED):
        fields["stop_requested"] = None
    if verdict.state is JobState.SUCCEEDED and ending.final_metrics:
        fields["last_metrics"] = {**(job.last_metrics or {}), **ending.final_metrics}
    moved = move(
        session,
        job_id,
        verdict.state,
        attempt=attempt,
        now=now,
        facts={
            "cause": verdict.cause.value if verdict.cause else None,
            "message": _detail(verdict, ending),
            "exit_code": ending.exit_code,
            "signal": ending.signal,
        },
        fields=fields,
    )
    if not moved:
        # Else the attempt would be over and its job active for ever, with nobody left to end it.
        raise IllegalEndError(job_id, job.state, verdict.state)
    if ending.cause is not None and verdict.losses > job.losses:
        metering.on_commit(session, metering.attempts_lost.labels(ending.cause.value).inc)
    give_back(session, job_id, attempt, now)
    return verdict.state


class IllegalEndError(RuntimeError):
    """An end that the table of states does not allow: a fault of this code; the transaction must be lost with it."""

    def __init__(self, job_id: str, state: str, target: JobState) -> None:
        super().__init__(f"an attempt of job {job_id} cannot make it {target.value}, since it is {state}")


def _close_attempt(session: Session, job_id: str, attempt: int, ending: Ending, now: datetime) -> datetime | None:
    return session.execute(
        update(Attempt)
        .where(Attempt.job_id == job_id, Attempt.number == attempt)
        .values(
            ended_at=now,
            cause=ending.cause.value if ending.cause else None,
            detail=(ending.detail or "")[:_DETAIL_CHARACTERS] or None,
            exit_code=ending.exit_code,
            signal=ending.signal,
            max_rss_bytes=ending.max_rss_bytes,
        )
        .returning(Attempt.started_at)
        .execution_options(synchronize_session=False)
    ).scalar()


def _unclaimed_pause_s(session: Session, job_id: str, cause: Cause | None) -> float:
    if cause is not Cause.NOT_CLAIMED:
        return 0.0
    so_far = select(func.count()).where(Attempt.job_id == job_id, Attempt.cause == Cause.NOT_CLAIMED.value)
    return _pause_s(session.execute(so_far).scalar_one() - _UNCLAIMED_FREE + 1)


def _detail(verdict: Verdict, ending: Ending) -> str | None:
    if verdict.cause is None:
        return None
    sentence = CAUSES[verdict.cause].sentence
    detail = (ending.detail or "").strip()[:_DETAIL_CHARACTERS]
    return f"{sentence} {detail}" if detail else sentence
