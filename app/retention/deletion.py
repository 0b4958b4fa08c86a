"""Deleting a job: its history at once, then its files.

Rows go first and in one transaction, so that a crash on the way leaves files that nobody names, which `gc` finds, and
never a row without its file.
"""

import logging
from collections.abc import Sequence
from typing import Final

from sqlalchemy import delete
from sqlalchemy.orm import Session

from app.db import Database, unlimited
from app.errors import Conflict, NotFound, TrainshedError
from app.jobs.lifecycle import lock_job
from app.jobs.models import Job
from app.jobs.states import JobState
from app.jobs.stops import StateConflict
from app.retention.dependents import needed_by
from app.storage import Storage
from app.storage.keys import prefixes_of_job

log = logging.getLogger(__name__)

_SHOWN: Final = 5


class JobNeeded(Conflict):
    """Jobs that are not over go on from this one's checkpoints, or start from its weights."""

    code = "job_needed"

    def __init__(self, job_id: str, jobs: Sequence[str]) -> None:
        more = f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else ""
        super().__init__(
            f"Job {job_id} is needed by {', '.join(jobs[:_SHOWN])}{more}; cancel them, or wait for their end."
        )
        self.jobs = list(jobs)


def delete_job(database: Database, storage: Storage, project_id: str, job_id: str) -> None:
    """Delete a job that is over: its history, checkpoints, artifacts and predictions.

    Raises:
        NotFound: there is none with this id in this project.
        StateConflict: it is not over.
        JobNeeded: jobs that are not over need its files.
    """
    with database.write() as session:
        delete_rows(session, job_id, project_id)
    remove_files(storage, job_id)


def delete_rows(session: Session, job_id: str, project_id: str | None = None) -> None:
    """Delete the job's row, and with it all rows that refer to it; see `delete_job` for what is raised.

    The row is locked first: a job that is submitted now to go on from it either is seen here, or does not find it.
    """
    # Months of training are millions of rows: cut off after a minute, such a job could never be deleted.
    unlimited(session)
    job = lock_job(session, job_id)
    if job is None or project_id not in (None, job.project_id):
        raise NotFound("job", job_id)
    state = JobState(job.state)
    if not state.is_final:
        raise StateConflict(job_id, state, "go")
    jobs = needed_by(session, job_id)
    if jobs:
        raise JobNeeded(job_id, jobs)
    session.execute(delete(Job).where(Job.id == job_id).execution_options(synchronize_session=False))


def remove_files(storage: Storage, job_id: str) -> int:
    """Remove whatever the storage has of a job that is gone; answers how many files.

    A storage that fails keeps its files; they are found again as files that nobody names.
    """
    removed = 0
    try:
        for prefix in prefixes_of_job(job_id):
            for key in storage.list(prefix):
                storage.delete(key)
                removed += 1
    except (OSError, TrainshedError):
        log.warning("files of the deleted job %s are still in the storage", job_id, exc_info=True)
    return removed
