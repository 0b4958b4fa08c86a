"""The waiting jobs, as the scheduler and the explanations read them."""

from datetime import datetime
from typing import Final

from sqlalchemy import exists, func, or_, select
from sqlalchemy.orm import Session

from app.jobs.models import Job
from app.jobs.repository import JobRow
from app.jobs.states import JobState
from app.scheduling.plan import WaitingJob

# How many jobs of one shape and priority a pass looks at. Per shape, so that a long row of jobs that cannot start now
# (no worker for their framework, say) never hides the others behind it; per priority, so that an old job of a low
# priority is seen however many of a higher one wait: it may have overtaken them by its age, which the plan knows.
DEPTH: Final = 500

_SHAPE: Final = (Job.framework, Job.device_type, Job.device_count, Job.min_device_memory_bytes, Job.device_name)
_PLACE: Final = (Job.queued_at, Job.id)
_COLUMNS: Final = (
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


def any_ready(session: Session, now: datetime) -> bool:
    ready = or_(Job.not_before.is_(None), Job.not_before <= now)
    return bool(session.execute(select(exists().where(Job.state == JobState.QUEUED.value, ready))).scalar())


def waiting_jobs(session: Session, now: datetime, depth: int = DEPTH) -> list[WaitingJob]:
    """The first `depth` queued jobs of each shape and priority that may start now.

    Shape = what decides where a job fits.
    """
    ranked = (
        select(*_COLUMNS, func.row_number().over(partition_by=(*_SHAPE, Job.priority), order_by=_PLACE).label("place"))
        .where(Job.state == JobState.QUEUED.value, or_(Job.not_before.is_(None), Job.not_before <= now))
        .subquery()
    )
    columns = [ranked.c[column.key] for column in _COLUMNS]
    return [WaitingJob(*row) for row in session.execute(select(*columns).where(ranked.c.place <= depth))]


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
