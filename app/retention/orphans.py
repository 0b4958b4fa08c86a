"""Files in the storage that no row names: left by a crash between a file and its row, or by a storage that failed.

What is being written has no row yet either. So files of a job that is not over are left alone, of a task that is not
over too, and a data set's or a bundle's until a day after its id was made.

A storage can outlive its database, or be named by mistake beside a new one. Files that are older than everything in the
database (ids tell) are not this database's, whose first project is older than all its jobs: they wait for their rows
to be restored.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from app.accounts.models import Project
from app.artifacts.models import Artifact
from app.bundles.models import Bundle
from app.checkpoints.models import Checkpoint
from app.checkpoints.repository import CheckpointFacts
from app.datasets.models import Dataset
from app.db import Database
from app.ids import id_time, is_id
from app.jobs.models import Job
from app.jobs.states import FINAL
from app.predictions.models import ModelTask
from app.predictions.states import OPEN
from app.storage import Storage
from app.storage.keys import ARTIFACTS, BUNDLES, CHECKPOINTS, DATASETS, EXPORTS

UPLOADING: Final = timedelta(days=1)
"""How long the file of a data set or a bundle may be without its row; an upload takes minutes."""
_BATCH: Final = 500
_UPLOADED: Final = {DATASETS: "ds", BUNDLES: "bun"}


def find_orphans(database: Database, storage: Storage, now: datetime) -> list[str]:
    """Keys of files that can be deleted, sorted.

    The storage is listed first, then it is asked what is under way, then what has a name: whatever got its row between
    two of these questions was under way at the first, or has its name by the last.
    """
    keys = storage.list()
    with database.read() as session:
        first = session.scalar(select(func.min(Project.id)))
    if first is None:
        return []
    began = id_time(first)
    jobs: dict[str, list[str]] = {}
    found: list[str] = []
    uploads: list[str] = []
    for key in keys:
        kind, _, rest = key.partition("/")
        owner = rest.partition("/")[0]
        if kind in _UPLOADED and is_id(_UPLOADED[kind], owner):
            uploads += [key] if began <= id_time(owner) < now - UPLOADING else []
        elif kind in (ARTIFACTS, CHECKPOINTS, EXPORTS) and is_id("job", owner) and id_time(owner) >= began:
            jobs.setdefault(owner, []).append(key)
        # Anything else is not ours: a bucket may be shared.
    for batch in _batches(sorted(jobs)):
        found += _of_jobs(database, batch, [key for job_id in batch for key in jobs[job_id]])
    for batch in _batches(uploads):
        with database.read() as session:
            columns = (Dataset.storage_key, Bundle.storage_key)
            named = {key for column in columns for key in session.scalars(select(column).where(column.in_(batch)))}
        found += [key for key in batch if key not in named]
    return sorted(found)


def _of_jobs(database: Database, jobs: list[str], keys: list[str]) -> Iterator[str]:
    with database.read() as session:
        over = [state.value for state in FINAL]
        busy = set(session.scalars(select(Job.id).where(Job.id.in_(jobs), Job.state.not_in(over))))
        tasks = select(ModelTask.id).where(
            ModelTask.job_id.in_(jobs), ModelTask.state.in_([state.value for state in OPEN])
        )
        making = set(session.scalars(tasks))
        named = _named(session, jobs)
    for key in keys:
        kind, job_id, *rest = key.split("/")
        if job_id in busy or (kind == EXPORTS and rest[0] in making) or key in named:
            continue
        yield key


def _named(session: Session, jobs: list[str]) -> set[str]:
    names = set(session.scalars(select(Artifact.storage_key).where(Artifact.job_id.in_(jobs))))
    for row in session.scalars(select(Checkpoint).where(Checkpoint.job_id.in_(jobs))):
        names.update(CheckpointFacts.of(row).keys)
    return names


def _batches(items: list[str]) -> Iterable[list[str]]:
    return (items[start : start + _BATCH] for start in range(0, len(items), _BATCH))
