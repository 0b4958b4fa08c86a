"""What time must settle when nobody else does: leases that ran out, placements nobody took, hints that got lost."""

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from sqlalchemy import exists, or_, select, update
from sqlalchemy.orm import Session

from app.db import Database, lock_key
from app.errors import Cause, Unavailable
from app.fleet import registry
from app.fleet.models import Lease, Worker
from app.jobs.endings import Ending, end_attempt
from app.jobs.lifecycle import hold_job
from app.jobs.models import Attempt, AttemptNode, Job
from app.jobs.states import ACTIVE
from app.scheduling.run import PASS_LOCK, Placed, Times

log = structlog.get_logger("control")

_ACTIVE_VALUES = [state.value for state in ACTIVE]


@dataclass(frozen=True)
class Settled:
    """An attempt that was ended here, and why."""

    job_id: str
    attempt: int
    cause: Cause


def reconcile(database: Database, times: Times) -> list[Settled]:
    """End what is overdue. Every row is judged again inside the transaction that ends it, by the database's clock.

    One that cannot be ended, for a fault of its rows or of this code, keeps no other from its end.
    """
    with database.read() as session:
        now = database.now(session)
        overdue = [*_unclaimed(session, now), *_lost(session, now, times)]
    settled: list[Settled] = []
    for candidate in overdue:
        try:
            if _settle(database, candidate, times):
                settled.append(candidate)
        except Unavailable as error:
            log.warning("pass_failed", code=error.code, error=str(error))
            break
        except Exception:
            log.exception("attempt_not_settled", job_id=candidate.job_id, attempt=candidate.attempt)
    return settled


def _settle(database: Database, candidate: Settled, times: Times) -> bool:
    with database.write() as session:
        lock_key(session, PASS_LOCK)
        if not _still_overdue(session, database, candidate, times):
            return False
        ending = Ending(succeeded=False, cause=candidate.cause, detail=None)
        return end_attempt(session, candidate.job_id, candidate.attempt, ending, database.now(session)) is not None


def _still_overdue(session: Session, database: Database, candidate: Settled, times: Times) -> bool:
    """Judge again under the locks of the job and of its leases, and by a time that is read after they were free.

    A heartbeat that is renewing just now holds the leases; the host counts on them from its commit on, so it must win.
    """
    hold_job(session, candidate.job_id)
    registry.hold_leases(session, Lease.job_id == candidate.job_id)
    now, job_id = database.now(session), candidate.job_id
    unclaimed = candidate.cause is Cause.NOT_CLAIMED
    return candidate in (_unclaimed(session, now, job_id) if unclaimed else _lost(session, now, times, job_id))


def _unclaimed(session: Session, now: datetime, job_id: str | None = None) -> list[Settled]:
    query = select(Attempt.job_id, Attempt.number).where(
        Attempt.ended_at.is_(None), Attempt.claimed_at.is_(None), Attempt.claim_by < now
    )
    if job_id is not None:
        query = query.where(Attempt.job_id == job_id)
    return [Settled(row.job_id, row.number, Cause.NOT_CLAIMED) for row in session.execute(query)]


def _lost(session: Session, now: datetime, times: Times, job_id: str | None = None) -> list[Settled]:
    """Claimed attempts whose lease ran out, or that hold none (files are being stored) and whose host fell silent."""
    lease_of = (Lease.job_id == Attempt.job_id) & (Lease.attempt == Attempt.number)
    expired = exists().where(lease_of, Lease.expires_at < now)
    leased = exists().where(lease_of)
    silent = Worker.heartbeat_at < now - timedelta(seconds=times.lease_s)
    query = (
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
    )
    if job_id is not None:
        query = query.where(Attempt.job_id == job_id)
    return [Settled(row.job_id, row.number, Cause.WORKER_LOST) for row in session.execute(query)]


def due_hints(database: Database, repeat_after_s: float) -> list[Placed]:
    """Workers to be told (again): placements nobody claimed, and stop requests of running attempts."""
    with database.read() as session:
        now = database.now(session)
        due = or_(Attempt.hinted_at.is_(None), Attempt.hinted_at < now - timedelta(seconds=repeat_after_s))
        wanted = or_(Attempt.claimed_at.is_(None), Job.stop_requested.is_not(None))
        rows = session.execute(
            select(Attempt.job_id, Attempt.number, AttemptNode.worker_id)
            .join(AttemptNode, (AttemptNode.job_id == Attempt.job_id) & (AttemptNode.attempt == Attempt.number))
            .join(Job, (Job.id == Attempt.job_id) & (Job.attempt == Attempt.number))
            .where(Attempt.ended_at.is_(None), Job.state.in_(_ACTIVE_VALUES), due, wanted)
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
