"""Checkpoints along a line of retries: what a job can go on from, its own or those of the jobs it was a retry of.

A retry that ended before its first checkpoint leaves none; the next one goes on from what that one had gone on from.
"""

from collections.abc import Iterator
from typing import Final, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.checkpoints import repository as checkpoints
from app.checkpoints.repository import FALL_BACKS, CheckpointFacts
from app.jobs.models import Job

_LONGEST_LINE: Final = 100


def to_go_on_from(session: Session, job_id: str) -> list[CheckpointFacts]:
    """The checkpoints that a job's next attempt goes on from, the best choice first; each is for want of the others."""
    found = checkpoints.newest(session, job_id)
    for parent_id, step in line_of(session, job_id):
        if len(found) >= FALL_BACKS:
            break
        wanted = checkpoints.choose(session, parent_id, step)
        found += [] if wanted is None else [wanted]
        found += checkpoints.newest(session, parent_id, up_to=step - 1)
    return found


def left_by(session: Session, job_id: str, choice: Literal["best", "last"]) -> CheckpointFacts | None:
    """The best or the newest checkpoint that a job leaves for its retry."""
    own = checkpoints.choose(session, job_id, choice)
    if own is not None:
        return own
    for parent_id, step in line_of(session, job_id):
        found = checkpoints.choose(session, parent_id, step if choice == "last" else "best")
        if found is not None and found.step <= step:
            return found
    return None


def line_of(session: Session, job_id: str) -> Iterator[tuple[str, int]]:
    """The jobs that this one is a retry of, the nearest first, each with the step up to which it counts."""
    bound: int | None = None
    for _ in range(_LONGEST_LINE):
        row = session.execute(select(Job.parent_job_id, Job.parent_step).where(Job.id == job_id)).one_or_none()
        if row is None or row.parent_job_id is None or row.parent_step is None:
            return
        bound = row.parent_step if bound is None else min(bound, row.parent_step)
        job_id = row.parent_job_id
        yield job_id, bound
