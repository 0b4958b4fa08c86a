"""Which jobs that are not over still need another job's files."""

from collections.abc import Iterator
from typing import Final

from sqlalchemy import Text, select, type_coerce
from sqlalchemy.orm import Session

from app.jobs.lineage import line_of
from app.jobs.models import Job
from app.jobs.states import FINAL, JobState

_OPEN: Final = [state.value for state in JobState if state not in FINAL]


def needed_by(session: Session, job_id: str) -> list[str]:
    """Ids of jobs that go on from this one's checkpoints, or start from its weights, and are not over.

    A retry needs the whole line of jobs that it is a retry of: what it goes on from may be its grandparent's.
    """
    return sorted({*_retries(session, job_id), *_initialized(session, job_id)})


def _retries(session: Session, job_id: str) -> Iterator[str]:
    open_retries = select(Job.id).where(Job.state.in_(_OPEN), Job.parent_step.is_not(None))
    for child in session.scalars(open_retries):
        if any(parent == job_id for parent, _ in line_of(session, child)):
            yield child


def _initialized(session: Session, job_id: str) -> list[str]:
    """By the text of the spec first; the id may also stand there in a tag, or in a command or a parameter of code."""
    text = type_coerce(Job.effective_spec, Text)
    query = select(Job.id, Job.effective_spec).where(Job.state.in_(_OPEN), text.contains(f'"{job_id}"'))
    return [
        found.id
        for found in session.execute(query)
        if (found.effective_spec.get("initialize_from") or {}).get("job") == job_id
    ]
