"""What restored rows say of the present, put right: nothing runs, nobody holds anything, no worker is there."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import delete, select, update
from sqlalchemy.orm import Session

from app.artifacts.models import Artifact
from app.bundles.models import Bundle
from app.checkpoints.models import Checkpoint
from app.checkpoints.repository import CheckpointFacts
from app.datasets.models import Dataset
from app.fleet.models import Lease, Worker
from app.holds.models import Hold
from app.ids import new_id
from app.jobs import journal
from app.jobs.endings import Ending, end_attempt
from app.jobs.models import Attempt, Job
from app.jobs.states import ACTIVE, JobState

_RESTORED = "The service was restored from a backup of a time at which this job ran; it goes on from its checkpoint."


@dataclass
class Settled:
    """Ids of jobs that ran when the backup was made, and what rows name although the backup has no such file.

    `missing` has keys of artifacts, data sets and bundles alone: a checkpoint whose files are not all there has no row
    any more.
    """

    requeued: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def settle(session: Session, missing: Iterable[str], moment: datetime, now: datetime) -> Settled:
    """Put right what the rows say, which must have the newest schema.

    What ran ended at `moment`, when the backup was made: the time since then is not on a job's limit nor on anybody's
    account. `missing` are keys of files that are not in the backup.
    """
    absent = set(missing)
    settled = Settled(missing=_drop_checkpoints(session, absent))
    session.execute(delete(Lease))
    for job_id, attempt in _active(session):
        if end_attempt(session, job_id, attempt, Ending(succeeded=False), moment) is JobState.QUEUED:
            entry = journal.Entry("notice", {"code": "restored", "message": _RESTORED})
            journal.append(session, job_id, attempt, [entry], now)
        settled.requeued.append(job_id)
    session.execute(update(Attempt).where(Attempt.ended_at.is_(None)).values(ended_at=moment))
    session.execute(update(Hold).where(Hold.ended_at.is_(None)).values(ended_at=moment, ended_why="device_gone"))
    # A worker that still runs finds that it was replaced, ends its trainers and registers anew.
    for worker in session.scalars(select(Worker)):
        worker.state, worker.instance = "offline", new_id("wrk")
    session.flush()
    return settled


def _active(session: Session) -> list[tuple[str, int]]:
    query = select(Job.id, Job.attempt).where(Job.state.in_([state.value for state in ACTIVE])).order_by(Job.id)
    return [(row.id, row.attempt) for row in session.execute(query)]


def _drop_checkpoints(session: Session, absent: set[str]) -> list[str]:
    """Drop rows of checkpoints that lack a file; what else of `absent` is named by a row."""
    jobs = sorted({key.split("/")[1] for key in absent if key.startswith("checkpoints/")})
    for job_id in jobs:
        for row in session.scalars(select(Checkpoint).where(Checkpoint.job_id == job_id)):
            if not absent.isdisjoint(CheckpointFacts.of(row).keys):
                session.delete(row)
    session.flush()
    named = {
        key
        for column in (Artifact.storage_key, Dataset.storage_key, Bundle.storage_key)
        for key in absent
        if session.execute(select(1).where(column == key).limit(1)).first() is not None
    }
    return sorted(named)
