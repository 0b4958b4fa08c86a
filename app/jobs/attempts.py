"""The worker's side of a job: claim a placement, say that it runs, report, free the devices.

Every function takes the attempt number and does nothing when it is not the current one (fenced): a worker that was
frozen and comes back cannot write into the attempt that replaced its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.datasets.models import Dataset
from app.fleet import registry
from app.fleet.models import Device, Lease, Worker
from app.jobs import journal
from app.jobs.lifecycle import hold_job, lock_job, move
from app.jobs.models import Attempt, AttemptNode, Job
from app.jobs.states import ACTIVE, JobState, StopRequest
from app.spec import EffectiveSpec

_ACTIVE_VALUES = [state.value for state in ACTIVE]


@dataclass(frozen=True)
class ClaimedDevice:
    id: str
    kind: str
    name: str
    pci_bus_id: str | None
    memory_bytes: int | None
    threads: int
    simulated: bool


@dataclass(frozen=True)
class Claim:
    """What a worker needs to run one attempt; `remaining_s` is what is left of `timeout_s` over all attempts."""

    job_id: str
    attempt: int
    spec: EffectiveSpec
    dataset_key: str | None
    builtin: str | None
    devices: tuple[ClaimedDevice, ...]
    stop: StopRequest | None
    remaining_s: float


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


def claim(
    session: Session, worker_id: str, instance: str, job_id: str, attempt: int, now: datetime, lease_s: float
) -> Claim | None:
    """Take a placement; None when it is not there any more, so that only one delivery of a message ever wins.

    Nor may an instance take it that another one has replaced meanwhile: that one has settled what was open already.
    """
    job = lock_job(session, job_id)
    if job is None or job.attempt != attempt or job.state != JobState.STARTING:
        return None
    if not _is_placed_on(session, worker_id, instance, job_id, attempt):
        return None
    won = session.execute(
        update(Attempt)
        .where(
            Attempt.job_id == job_id,
            Attempt.number == attempt,
            Attempt.claimed_at.is_(None),
            Attempt.ended_at.is_(None),
        )
        .values(claimed_at=now)
        .returning(Attempt.number)
        .execution_options(synchronize_session=False)
    ).scalar()
    if won is None:
        return None
    session.execute(
        update(AttemptNode)
        .where(AttemptNode.job_id == job_id, AttemptNode.attempt == attempt, AttemptNode.worker_id == worker_id)
        .values(instance=instance)
        .execution_options(synchronize_session=False)
    )
    registry.hold_leases(session, Lease.job_id == job_id, Lease.attempt == attempt)
    session.execute(
        update(Lease)
        .where(Lease.job_id == job_id, Lease.attempt == attempt)
        .values(expires_at=now + timedelta(seconds=lease_s))
        .execution_options(synchronize_session=False)
    )
    return _claim_of(session, job, attempt)


def _is_placed_on(session: Session, worker_id: str, instance: str, job_id: str, attempt: int) -> bool:
    found = session.execute(
        select(AttemptNode.worker_id)
        .join(Worker, Worker.id == AttemptNode.worker_id)
        .where(
            AttemptNode.job_id == job_id,
            AttemptNode.attempt == attempt,
            AttemptNode.worker_id == worker_id,
            Worker.instance == instance,
        )
    ).scalar()
    return found is not None


def _claim_of(session: Session, job: Job, attempt: int) -> Claim:
    spec = EffectiveSpec.model_validate(job.effective_spec)
    dataset = session.get(Dataset, job.dataset_id) if job.dataset_id else None
    devices = (
        session.execute(
            select(Device)
            .join(Lease, Lease.device_id == Device.id)
            .where(Lease.job_id == job.id, Lease.attempt == attempt)
            .order_by(Device.position, Device.id)
        )
        .scalars()
        .all()
    )
    return Claim(
        job_id=job.id,
        attempt=attempt,
        spec=spec,
        dataset_key=dataset.storage_key if dataset else None,
        builtin=None if dataset else spec.data.source,
        devices=tuple(
            ClaimedDevice(d.id, d.kind, d.name, d.pci_bus_id, d.memory_bytes, d.threads, d.simulated) for d in devices
        ),
        stop=StopRequest(job.stop_requested) if job.stop_requested else None,
        remaining_s=max(0.0, job.timeout_s - job.run_s),
    )


def mark_running(
    session: Session, job_id: str, attempt: int, process: ProcessFacts, facts: Mapping[str, Any], now: datetime
) -> bool:
    """The trainer is up and has verified its devices; False when fenced."""
    job = lock_job(session, job_id)
    if job is None:
        return False
    moved = move(
        session,
        job_id,
        JobState.RUNNING,
        attempt=attempt,
        now=now,
        facts={"device_kind": facts.get("device_kind"), "devices": facts.get("devices")},
        fields={"phase": None, **({} if job.started_at else {"started_at": now})},
    )
    if not moved:
        return False
    session.execute(
        update(Attempt)
        .where(Attempt.job_id == job_id, Attempt.number == attempt)
        .values(started_at=now, facts=dict(facts))
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


def is_better(metrics: Mapping[str, Any], best: Mapping[str, Any] | None) -> bool:
    """Whether these metrics have the lower validation loss (without a validation part: the lower loss)."""
    name = "val_loss" if "val_loss" in metrics else "loss"
    value = metrics.get(name)
    if not isinstance(value, int | float):
        return False
    previous = best.get(name) if best else None
    return not isinstance(previous, int | float) or value < previous


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


def free_devices(session: Session, job_id: str, attempt: int) -> None:
    """Give the devices back; to be called once no process of the attempt is left."""
    hold_job(session, job_id)
    registry.release(session, job_id, attempt)


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
