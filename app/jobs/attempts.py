"""The worker's side of a running attempt: say that it runs, report, free the devices (app.jobs.claims takes it).

Every function takes the attempt number and does nothing when it is not the current one (fenced): a worker that was
frozen and comes back cannot write into the attempt that replaced its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.jobs import journal
from app.jobs.charging import give_back
from app.jobs.lifecycle import hold_job, lock_job, move
from app.jobs.models import Attempt, AttemptNode, Job
from app.jobs.resumption import Resumption, is_better
from app.jobs.states import ACTIVE, JobState, StopRequest

_ACTIVE_VALUES = [state.value for state in ACTIVE]


@dataclass(frozen=True)
class Attention:
    """What waits for a worker: placements nobody claimed yet, and stop requests for what it runs."""

    unclaimed: list[tuple[str, int]] = field(default_factory=list)
    stops: dict[tuple[str, int], StopRequest] = field(default_factory=dict)


@dataclass(frozen=True)
class OpenAttempt:
    """An attempt of this worker that has not ended in the database; `instance` says which start of it claimed it."""

    job_id: str
    attempt: int
    instance: str | None
    devices: list[str]
    pid: int | None
    pgid: int | None
    process_started: str | None


@dataclass(frozen=True)
class ProcessFacts:
    """The trainer's process; `started` is its start time in the kernel's own unit, so a reused pid is not mistaken."""

    pid: int
    pgid: int
    started: str | None


@dataclass(frozen=True)
class Measured:
    """How the cards of an attempt have worked so far; None is what no card could tell. `utilization` is 0 to 1."""

    energy_j: float | None
    utilization: float | None
    verdict: str


def attention(session: Session, worker_id: str) -> Attention:
    """One read that makes a lost message harmless."""
    rows = session.execute(
        select(Attempt.job_id, Attempt.number, Attempt.claimed_at, Job.stop_requested)
        .join(Job, (Job.id == Attempt.job_id) & (Job.attempt == Attempt.number))
        .join(AttemptNode, (AttemptNode.job_id == Attempt.job_id) & (AttemptNode.attempt == Attempt.number))
        .where(AttemptNode.worker_id == worker_id, Attempt.ended_at.is_(None), Job.state.in_(_ACTIVE_VALUES))
        .order_by(Attempt.placed_at, Attempt.job_id)
    ).all()
    return Attention(
        unclaimed=[(row.job_id, row.number) for row in rows if row.claimed_at is None],
        stops={
            (row.job_id, row.number): StopRequest(row.stop_requested)
            for row in rows
            if row.claimed_at is not None and row.stop_requested is not None
        },
    )


def mark_running(
    session: Session,
    job_id: str,
    attempt: int,
    process: ProcessFacts,
    facts: Mapping[str, Any],
    now: datetime,
    resumed: Resumption | None = None,
) -> bool:
    """The trainer is up and has verified its devices; False when fenced.

    From here on the job shows what it goes on from: what an earlier attempt reached beyond that is not part of it any
    more. The journal keeps it.
    """
    job = lock_job(session, job_id)
    if job is None:
        return False
    values = resumed or Resumption(step=None)
    moved = move(
        session,
        job_id,
        JobState.RUNNING,
        attempt=attempt,
        now=now,
        facts={
            "device_kind": facts.get("device_kind"),
            "devices": facts.get("devices"),
            "resumed_from_step": values.step,
        },
        fields={
            "phase": None,
            "progress": values.progress,
            "last_metrics": values.last_metrics,
            "best_metrics": values.best_metrics,
            **({} if job.started_at else {"started_at": now}),
        },
    )
    if not moved:
        return False
    session.execute(
        update(Attempt)
        .where(Attempt.job_id == job_id, Attempt.number == attempt)
        .values(started_at=now, facts=dict(facts), resumed_from_step=values.step)
        .execution_options(synchronize_session=False)
    )
    session.execute(
        update(AttemptNode)
        .where(AttemptNode.job_id == job_id, AttemptNode.attempt == attempt)
        .values(pid=process.pid, pgid=process.pgid, process_started=process.started)
        .execution_options(synchronize_session=False)
    )
    return True


def record(
    session: Session,
    job_id: str,
    attempt: int,
    entries: Sequence[journal.Entry],
    progress: Mapping[str, Any] | None,
    metrics: Mapping[str, Any] | None,
    now: datetime,
) -> bool:
    """Write one report: journal entries, and the job's progress and newest metrics. False when fenced."""
    values: dict[str, Any] = {}
    if progress is not None:
        values["progress"] = dict(progress)
    if metrics:
        values["last_metrics"] = dict(metrics)
        best = session.execute(select(Job.best_metrics).where(Job.id == job_id)).scalar()
        if is_better(metrics, best):
            values["best_metrics"] = dict(metrics)
    if values:
        kept = session.execute(
            update(Job)
            .where(Job.id == job_id, Job.attempt == attempt, Job.state.in_(_ACTIVE_VALUES))
            .values(**values)
            .returning(Job.id)
            .execution_options(synchronize_session=False)
        ).scalar()
        if kept is None:
            return False
    else:
        # Rows of the journal refer to the job: PostgreSQL locks it with the first one, and it comes before the head.
        hold_job(session, job_id)
    return journal.append(session, job_id, attempt, entries, now) is not None


def set_phase(session: Session, job_id: str, attempt: int, phase: str | None) -> bool:
    """Say what an active job is busy with besides training, for example `uploading`. False when fenced."""
    changed = session.execute(
        update(Job)
        .where(Job.id == job_id, Job.attempt == attempt, Job.state.in_(_ACTIVE_VALUES))
        .values(phase=phase)
        .returning(Job.id)
        .execution_options(synchronize_session=False)
    ).scalar()
    return changed is not None


def free_devices(session: Session, job_id: str, attempt: int, now: datetime) -> None:
    """Give the devices back; to be called once no process of the attempt is left."""
    hold_job(session, job_id)
    give_back(session, job_id, attempt, now)


def keep_measured(session: Session, job_id: str, attempt: int, measured: Measured) -> None:
    """Replace what is known so far of how an attempt's cards worked; not fenced, since its row is its own."""
    hold_job(session, job_id)
    session.execute(
        update(Attempt)
        .where(Attempt.job_id == job_id, Attempt.number == attempt)
        .values(energy_j=measured.energy_j, utilization=measured.utilization, verdict=measured.verdict)
        .execution_options(synchronize_session=False)
    )


def open_attempts(session: Session, worker_id: str) -> list[OpenAttempt]:
    """What the database believes this worker runs; a fresh instance settles all of it before it claims anything."""
    rows = session.execute(
        select(AttemptNode)
        .join(Attempt, (Attempt.job_id == AttemptNode.job_id) & (Attempt.number == AttemptNode.attempt))
        .where(AttemptNode.worker_id == worker_id, Attempt.ended_at.is_(None), Attempt.claimed_at.is_not(None))
        .order_by(AttemptNode.job_id)
    ).scalars()
    return [
        OpenAttempt(
            job_id=node.job_id,
            attempt=node.attempt,
            instance=node.instance,
            devices=[str(device["id"]) for device in node.devices],
            pid=node.pid,
            pgid=node.pgid,
            process_started=node.process_started,
        )
        for node in rows
    ]
