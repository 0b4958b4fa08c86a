"""The devices of an attempt go back, and what it had of them is written down."""

from datetime import datetime

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.fleet import registry
from app.jobs.models import Attempt


def give_back(session: Session, job_id: str, attempt: int, now: datetime) -> int:
    """Free the devices of an attempt and charge it for them; harmless when repeated. Answers how many it had.

    It pays from its claim on: what passes until a worker takes a placement is not the job's doing. The caller has
    locked the job; the attempt comes before its leases in the order of locks.
    """
    query = select(Attempt.claimed_at).where(Attempt.job_id == job_id, Attempt.number == attempt).with_for_update()
    claimed_at = session.execute(query).scalar()
    freed = registry.release(session, job_id, attempt)
    if freed and claimed_at is not None:
        held_s = freed * max(0.0, (now - claimed_at).total_seconds())  # a clock that was set back gives none back
        session.execute(
            update(Attempt)
            .where(Attempt.job_id == job_id, Attempt.number == attempt)
            .values(device_s=held_s)
            .execution_options(synchronize_session=False)
        )
    return freed
