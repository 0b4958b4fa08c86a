"""Reading jobs: one, a page of them, and the tries of one."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import Select, Text, select, type_coerce
from sqlalchemy.orm import Session

from app.errors import NotFound
from app.jobs.models import Attempt, AttemptNode, Job, JobTag
from app.jobs.states import ACTIVE, JobState


@dataclass(frozen=True)
class JobFilter:
    """What a list may be narrowed by; `tag` is (key, value), `q` is a part of the name."""

    states: tuple[JobState, ...] = ()
    framework: str | None = None
    kind: str | None = None
    tag: tuple[str, str] | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    q: str | None = None


JSON_COLUMNS = (
    "tags",
    "effective_spec",
    "warnings",
    "progress",
    "last_metrics",
    "best_metrics",
)


@dataclass(frozen=True)
class JobRow:
    """A job as it is read for the wire: plain values, JSON columns as text."""

    values: dict[str, Any]

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - one attribute per column
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None


def _columns() -> list[Any]:
    return [
        type_coerce(column, Text).label(column.name) if column.name in JSON_COLUMNS else column
        for column in Job.__table__.columns
    ]


_SELECT = select(*_columns())


def get_job(session: Session, project_id: str, job_id: str) -> JobRow:
    """The job.

    Raises:
        NotFound: there is none with this id in this project.
    """
    query = _SELECT.where(Job.id == job_id, Job.project_id == project_id)
    row = session.connection().execute(query).mappings().one_or_none()
    if row is None:
        raise NotFound("job", job_id)
    return JobRow(dict(row))


def list_jobs(
    session: Session, project_id: str, wanted: JobFilter, *, after: str | None, limit: int, descending: bool = True
) -> list[JobRow]:
    """A page of jobs by id, which is by time; one query per state, since SQLite cannot merge two ranges of an index."""
    rows: list[JobRow] = []
    if "\x00" in "".join((wanted.q or "", *(wanted.tag or ()))):
        return rows  # no stored text has one, and PostgreSQL refuses even the question
    for state in wanted.states or (None,):
        query = _filtered(project_id, wanted, state)
        if after is not None:
            query = query.where(Job.id < after if descending else Job.id > after)
        query = query.order_by(Job.id.desc() if descending else Job.id.asc()).limit(limit)
        rows.extend(JobRow(dict(row)) for row in session.connection().execute(query).mappings())
    if len(wanted.states) > 1:
        rows.sort(key=lambda row: str(row.id), reverse=descending)
    return rows[:limit]


def _filtered(project_id: str, wanted: JobFilter, state: JobState | None) -> Select[Any]:
    query = _SELECT.where(Job.project_id == project_id)
    if state is not None:
        query = query.where(Job.state == state.value)
    if wanted.framework is not None:
        query = query.where(Job.framework == wanted.framework)
    if wanted.kind is not None:
        query = query.where(Job.kind == wanted.kind)
    if wanted.created_after is not None:
        query = query.where(Job.created_at > wanted.created_after)
    if wanted.created_before is not None:
        query = query.where(Job.created_at < wanted.created_before)
    if wanted.q:
        query = query.where(Job.name.icontains(wanted.q, autoescape=True))
    if wanted.tag is not None:
        key, value = wanted.tag
        tagged = select(JobTag.job_id).where(JobTag.key == key, JobTag.value == value)
        query = query.where(Job.id.in_(tagged))
    return query


def active_ids(session: Session, project_id: str) -> frozenset[str]:
    """The project's jobs that may hold devices now."""
    active = [state.value for state in ACTIVE]
    found = session.execute(select(Job.id).where(Job.project_id == project_id, Job.state.in_(active))).scalars()
    return frozenset(found)


def attempts_of(session: Session, job_id: str) -> list[tuple[Attempt, list[AttemptNode]]]:
    """Every try of the job, oldest first, each with its share of the workers."""
    nodes: dict[int, list[AttemptNode]] = {}
    found: Sequence[AttemptNode] = (
        session.execute(select(AttemptNode).where(AttemptNode.job_id == job_id)).scalars().all()
    )
    for node in found:
        nodes.setdefault(node.attempt, []).append(node)
    tries = session.execute(select(Attempt).where(Attempt.job_id == job_id).order_by(Attempt.number)).scalars()
    return [(attempt, nodes.get(attempt.number, [])) for attempt in tries]
