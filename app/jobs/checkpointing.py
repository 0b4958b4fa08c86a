"""Recording a checkpoint whose files are stored: its row and its journal entry, in one fenced transaction."""

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.checkpoints import repository as checkpoints
from app.checkpoints.repository import CheckpointFacts
from app.jobs import journal
from app.jobs.models import Job
from app.jobs.states import ACTIVE, JobState


def record_checkpoint(
    session: Session, facts: CheckpointFacts, now: datetime, *, keep_periodic: bool
) -> list[str] | None:
    """Make a stored checkpoint one of its job's; answers the keys of files that no row names any more.

    None: the attempt is not the job's current one, and nothing is changed; the stored files are then nobody's. To be
    repeated when the answer was lost: it is journaled once. `keep_periodic` as in `app.checkpoints.repository.add`.
    """
    held = session.execute(select(Job.state, Job.attempt).where(Job.id == facts.job_id).with_for_update()).one_or_none()
    if held is None or held.attempt != facts.attempt or JobState(held.state) not in ACTIVE:
        return None
    added = checkpoints.add(session, facts, now, keep_periodic=keep_periodic)
    if added is None:
        return []
    entry = journal.Entry(
        "checkpoint",
        {
            "step": facts.step,
            "epoch": facts.epoch,
            "reason": facts.reason,
            "best": facts.best,
            "metrics": dict(facts.metrics),
            "size_bytes": facts.size_bytes,
        },
    )
    written = journal.append(session, facts.job_id, facts.attempt, [entry], now)
    return None if written is None else added.unnamed
