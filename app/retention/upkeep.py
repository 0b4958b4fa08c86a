"""What time takes: jobs and checkpoints that were kept long enough, and files that nobody names.

Nothing is taken unless it was asked for: TRAINSHED_KEEP_JOBS_DAYS and TRAINSHED_KEEP_CHECKPOINTS_DAYS have no default.
"""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import Select, delete, select
from sqlalchemy.orm import Session

from app.checkpoints.models import Checkpoint
from app.checkpoints.repository import CheckpointFacts
from app.db import Database
from app.errors import Conflict, NotFound, TrainshedError
from app.ids import first_id
from app.jobs.lifecycle import lock_job
from app.jobs.models import Job
from app.jobs.states import FINAL, JobState
from app.retention.deletion import delete_rows, remove_files
from app.retention.dependents import needed_by
from app.retention.orphans import find_orphans
from app.storage import Storage

log = logging.getLogger(__name__)

_AT_ONCE: Final = 200
_OVER: Final = [state.value for state in FINAL]


@dataclass(frozen=True)
class Kept:
    """How many days after their end jobs, and checkpoints of jobs, are kept; None is for ever."""

    jobs_days: float | None = None
    checkpoints_days: float | None = None


@dataclass
class Swept:
    """What went, or would go: ids of jobs, (job, step) of checkpoints, keys of files that nobody names."""

    jobs: list[str] = field(default_factory=list)
    checkpoints: list[tuple[str, int]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.jobs or self.checkpoints or self.files)


class Retention:
    """Several processes may sweep at the same time: each change is judged again inside its own transaction."""

    def __init__(self, database: Database, storage: Storage, kept: Kept) -> None:
        self._database = database
        self._storage = storage
        self._kept = kept

    def sweep(self, *, orphans: bool = True, dry_run: bool = False) -> Swept:
        """Take what is due; with `dry_run` only say what it would be. `orphans` lists the whole storage.

        What a crash leaves is found by the next sweep. A job whose checkpoints another one still needs stays.
        """
        with self._database.read() as session:
            now = self._database.now(session)
        swept = Swept()
        swept.jobs = [job_id for job_id in self._old_jobs(now) if dry_run or self._delete_job(job_id)]
        gone = set(swept.jobs)
        old = [found for found in self._old_checkpoints(now) if found[0] not in gone]
        swept.checkpoints = [found for found in old if dry_run or self._delete_checkpoint(*found)]
        if orphans:
            swept.files = find_orphans(self._database, self._storage, now)
            if not dry_run:
                self._delete_files(swept.files)
        return swept

    def _old_jobs(self, now: datetime) -> Iterator[str]:
        if self._kept.jobs_days is None:
            return
        before = now - timedelta(days=self._kept.jobs_days)
        query = select(Job.id).where(Job.state.in_(_OVER), Job.finished_at < before)
        yield from self._unneeded(_ids(self._database, query, before))

    def _old_checkpoints(self, now: datetime) -> Iterator[tuple[str, int]]:
        if self._kept.checkpoints_days is None:
            return
        before = now - timedelta(days=self._kept.checkpoints_days)
        kept = select(Checkpoint.job_id).where(Checkpoint.job_id == Job.id).exists()
        query = select(Job.id).where(Job.state.in_(_OVER), Job.finished_at < before, kept)
        for job_id in self._unneeded(_ids(self._database, query, before)):
            with self._database.read() as session:
                steps = select(Checkpoint.step).where(Checkpoint.job_id == job_id).order_by(Checkpoint.step)
                found = list(session.scalars(steps))
            yield from ((job_id, step) for step in found)

    def _unneeded(self, job_ids: Iterator[str]) -> Iterator[str]:
        for job_id in job_ids:
            with self._database.read() as session:
                needed = needed_by(session, job_id)
            if not needed:
                yield job_id

    def _delete_job(self, job_id: str) -> bool:
        try:
            with self._database.write() as session:
                delete_rows(session, job_id)
        except (Conflict, NotFound):  # needed since, or gone already
            return False
        remove_files(self._storage, job_id)
        return True

    def _delete_checkpoint(self, job_id: str, step: int) -> bool:
        with self._database.write() as session:
            keys = _forget_checkpoint(session, job_id, step)
        self._delete_files(keys or [])
        return keys is not None

    def _delete_files(self, keys: list[str]) -> None:
        try:
            for key in keys:
                self._storage.delete(key)
        except (OSError, TrainshedError):
            log.warning("%d files could not be deleted; the next sweep finds them again", len(keys), exc_info=True)


def _forget_checkpoint(session: Session, job_id: str, step: int) -> list[str] | None:
    """Delete the row, under the lock of its job; the keys of its files, or None when it must stay or is gone."""
    job = lock_job(session, job_id)
    row = session.get(Checkpoint, (job_id, step), populate_existing=True)
    if job is None or row is None or not JobState(job.state).is_final or needed_by(session, job_id):
        return None
    keys = CheckpointFacts.of(row).keys
    session.execute(delete(Checkpoint).where(Checkpoint.job_id == job_id, Checkpoint.step == step))
    return keys


def _ids(database: Database, query: Select[str], before: datetime) -> Iterator[str]:
    """Ids of jobs in pages by id.

    Ids sort by time: a job that ended before a day was made before it, so of a long history only the old part is read.
    """
    after, last = "", first_id("job", before)
    while True:
        with database.read() as session:
            page = list(session.scalars(query.where(Job.id > after, Job.id < last).order_by(Job.id).limit(_AT_ONCE)))
        yield from page
        if len(page) < _AT_ONCE:
            return
        after = page[-1]
