"""The waiting jobs, as the scheduler and the explanations read them."""

from typing import Final

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from app.jobs.models import Job
from app.jobs.repository import JobRow
from app.jobs.states import JobState
from app.scheduling.plan import WaitingJob

# How deep one pass looks; jobs behind it wait for the next pass, in the same order.
DEPTH: Final = 2000


def any_waiting(session: Session) -> bool:
    return bool(session.execute(select(exists().where(Job.state == JobState.QUEUED.value))).scalar())


def waiting_jobs(session: Session, limit: int = DEPTH) -> list[WaitingJob]:
    """Queued jobs, those with the higher priority and the earlier place first."""
    rows = session.execute(
        select(
            Job.id,
            Job.framework,
            Job.device_type,
            Job.device_count,
            Job.priority,
            Job.queued_at,
            Job.not_before,
            Job.min_device_memory_bytes,
            Job.device_name,
        )
        .where(Job.state == JobState.QUEUED.value)
        .order_by(Job.priority.desc(), Job.queued_at, Job.id)
        .limit(limit)
    ).all()
    return [WaitingJob(*row) for row in rows]


def waiting_of(job: JobRow) -> WaitingJob:
    """The same view of one job that was read for the wire."""
    return WaitingJob(
        id=job.id,
        framework=job.framework,
        device_type=job.device_type,
        device_count=job.device_count,
        priority=job.priority,
        queued_at=job.queued_at,
        not_before=job.not_before,
        min_device_memory_bytes=job.min_device_memory_bytes,
        device_name=job.device_name,
    )
