"""What time must settle when nobody else does: leases that ran out, placements nobody took, hints that got lost."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import exists, or_, select, update
from sqlalchemy.orm import Session

from app.db import Database, lock_key
from app.errors import Cause
from app.fleet.models import Lease, Worker
from app.jobs.endings import Ending, end_attempt
from app.jobs.models import Attempt, AttemptNode, Job
from app.jobs.states import ACTIVE
from app.scheduling.run import PASS_LOCK, Placed, Times

_ACTIVE_VALUES = [state.value for state in ACTIVE]


@dataclass(frozen=True)
class Settled:
    """An attempt that was ended here, and why."""

    job_id: str
    attempt: int
    cause: Cause


def reconcile(database: Database, times: Times) -> list[Settled]:
    """End what is overdue. Every row is judged again inside the transaction that ends it, by the database's clock."""
    with database.read() as session:
        now = database.now(session)
        overdue = [*_unclaimed(session, now), *_lost(session, now, times)]
    settled: list[Settled] = []
    for candidate in overdue:
        with database.write() as session:
            lock_key(session, PASS_LOCK)
            if _still_overdue(session, candidate, database.now(session), times):
                ending = Ending(succeeded=False, cause=candidate.cause, detail=None)
                end_attempt(session, candidate.job_id, candidate.attempt, ending, database.now(session))
                settled.append(candidate)
    return settled


def _still_overdue(session: Session, candidate: Settled, now: datetime, times: Times) -> bool:
    # The job's row lock comes first everywhere; a heartbeat that renewed in between wins.
    session.execute(select(Job.id).where(Job.id == candidate.job_id).with_for_update())
    found = _unclaimed(session, now) if candidate.cause is Cause.NOT_CLAIMED else _lost(session, now, times)
    return candidate in found


def _unclaimed(session: Session, now: datetime) -> list[Settled]:
    rows = session.execute(
        select(Attempt.job_id, Attempt.number).where(
            Attempt.ended_at.is_(None), Attempt.claimed_at.is_(None), Attempt.claim_by < now
        )
    ).all()
    return [Settled(row.job_id, row.number, Cause.NOT_CLAIMED) for row in rows]


def _lost(session: Session, now: datetime, times: Times) -> list[Settled]:
    """Claimed attempts whose lease ran out, or that hold none (files are being stored) and whose host fell silent."""
    lease_of = (Lease.job_id == Attempt.job_id) & (Lease.attempt == Attempt.number)
    expired = exists().where(lease_of, Lease.expires_at < now)
    leased = exists().where(lease_of)
    silent = Worker.heartbeat_at < now - timedelta(seconds=times.lease_s)
    rows = session.execute(
        select(Attempt.job_id, Attempt.number)
        .join(AttemptNode, (AttemptNode.job_id == Attempt.job_id) & (AttemptNode.attempt == Attempt.number))
        .join(Worker, Worker.id == AttemptNode.worker_id)
        .join(Job, (Job.id == Attempt.job_id) & (Job.attempt == Attempt.number))
        .where(
            Attempt.ended_at.is_(None),
            Attempt.claimed_at.is_not(None),
            Job.state.in_(_ACTIVE_VALUES),
            or_(expired, silent & ~leased),
        )
        .distinct()
    ).all()
    return [Settled(row.job_id, row.number, Cause.WORKER_LOST) for row in rows]


def due_hints(database: Database, repeat_after_s: float) -> list[Placed]:
    """Workers to be told (again): placements nobody claimed, and stop requests of running attempts."""
    with database.read() as session:
        now = database.now(session)
        unclaimed = Attempt.claimed_at.is_(None) & (Attempt.hinted_at < now - timedelta(seconds=repeat_after_s))
        stopping = Attempt.claimed_at.is_not(None) & Job.stop_requested.is_not(None)
        rows = session.execute(
            select(Attempt.job_id, Attempt.number, AttemptNode.worker_id)
            .join(AttemptNode, (AttemptNode.job_id == Attempt.job_id) & (AttemptNode.attempt == Attempt.number))
            .join(Job, (Job.id == Attempt.job_id) & (Job.attempt == Attempt.number))
            .where(Attempt.ended_at.is_(None), Job.state.in_(_ACTIVE_VALUES), or_(unclaimed, stopping))
        ).all()
    hints = [Placed(row.job_id, row.number, row.worker_id) for row in rows]
    if hints:
        with database.write() as session:
            session.execute(
                update(Attempt)
                .where(Attempt.job_id.in_([hint.job_id for hint in hints]), Attempt.ended_at.is_(None))
                .values(hinted_at=database.now(session))
                .execution_options(synchronize_session=False)
            )
    return hints
