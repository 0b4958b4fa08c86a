"""The waiting jobs, as the scheduler and the explanations read them."""

from datetime import datetime
from typing import Final

from sqlalchemy import String, exists, func, or_, select
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.orm import Session
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction

from app.datasets.models import Dataset
from app.datasets.roots import SCHEME
from app.jobs.models import Job
from app.jobs.repository import JobRow
from app.jobs.states import JobState
from app.scheduling.plan import WaitingJob

# How many jobs of one shape and priority a pass looks at. Per shape, so that a long row of jobs that cannot start now
# (no worker for their framework, say) never hides the others behind it; per priority, so that an old job of a low
# priority is seen however many of a higher one wait: it may have overtaken them by its age, which the plan knows.
DEPTH: Final = 500


class _RootOf(GenericFunction[str]):
    """The name of the data root in an address, as `app.datasets.roots.root_of` finds it."""

    type = String()
    inherit_cache = True


@compiles(_RootOf)
def _root_of(element: _RootOf, compiler: SQLCompiler, **kwargs: object) -> str:
    path = f"substr({compiler.process(element.clauses, **kwargs)}, {len(SCHEME) + 1})"
    return f"split_part({path}, '/', 1)"


@compiles(_RootOf, "sqlite")
def _root_of_in_sqlite(element: _RootOf, compiler: SQLCompiler, **kwargs: object) -> str:
    path = f"substr({compiler.process(element.clauses, **kwargs)}, {len(SCHEME) + 1})"
    return f"substr({path}, 1, instr({path}, '/') - 1)"


_ROOT: Final = _RootOf(Dataset.uri).label("data_root")
_SHAPE: Final = (
    Job.framework,
    Job.device_type,
    Job.device_count,
    Job.min_device_memory_bytes,
    Job.device_name,
    _RootOf(Dataset.uri),
)
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
    _ROOT,
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
        .outerjoin(Dataset, Dataset.id == Job.dataset_id)
        .where(Job.state == JobState.QUEUED.value, or_(Job.not_before.is_(None), Job.not_before <= now))
        .subquery()
    )
    columns = [ranked.c[column.key] for column in _COLUMNS]
    rows = session.execute(select(*columns).where(ranked.c.place <= depth)).mappings()
    return [WaitingJob(**row) for row in rows]


def waiting_of(job: JobRow, data_root: str | None) -> WaitingJob:
    """The same view of one job that was read for the wire, and of where its data lie."""
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
        data_root=data_root,
    )
