"""Jobs that are over, with files in a storage: what tests of retention begin with."""

from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.accounts.models import Project
from app.artifacts.models import Artifact
from app.checkpoints.repository import CheckpointFacts, StoredFile
from app.checkpoints.repository import add as add_checkpoint
from app.db import Database
from app.ids import new_id
from app.jobs.models import Job, JournalRow
from app.jobs.states import JobState
from app.storage import Storage
from app.storage.keys import artifact_key, checkpoint_prefix
from tests.fakes import START
from tests.rows import add_attempt, add_job


class History:
    """Adds jobs of one project, the files of which are in `storage`."""

    def __init__(self, database: Database, storage: Storage, folder: Path) -> None:
        self.database = database
        self.storage = storage
        self._source = folder / "source.bin"
        self._source.write_bytes(b"weights")
        with database.write() as session:
            # Before everything that a test may call old: files from before the first project are not this database's.
            made = round((START - timedelta(days=1000)).timestamp() * 1000)
            self.project_id = new_id("prj", unix_ms=made)
            session.add(Project(id=self.project_id, name="default", created_at=START))

    def job(self, *, ended_days_ago: float = 0.0, steps: Iterable[int] = (10,), **changes: Any) -> str:
        """A job with one artifact and checkpoints; it has succeeded unless `changes` say otherwise."""
        ended = START - timedelta(days=ended_days_ago)
        made = round((ended - timedelta(hours=1)).timestamp() * 1000)
        values = {"state": JobState.SUCCEEDED, "finished_at": ended, "attempt": 1}
        with self.database.write() as session:
            project = session.get_one(Project, self.project_id)
            job = add_job(session, project, id=new_id("job", unix_ms=made), **(values | changes))
            add_attempt(session, job)
            session.add(JournalRow(job_id=job.id, seq=1, attempt=1, kind="log", at=ended, data="{}"))
            key = self.put(artifact_key(job.id, 1, "model.safetensors"))
            session.add(self._artifact(job.id, key))
            for step in steps:
                self._checkpoint(session, job.id, step)
            return job.id

    def put(self, key: str) -> str:
        self.storage.put(key, self._source)
        return key

    def jobs(self) -> set[str]:
        with self.database.read() as session:
            return set(session.scalars(select(Job.id)))

    def _artifact(self, job_id: str, key: str) -> Artifact:
        return Artifact(
            job_id=job_id,
            name="model.safetensors",
            attempt=1,
            kind="model",
            media_type="application/octet-stream",
            size_bytes=7,
            digest="0" * 64,
            storage_key=key,
            created_at=START,
        )

    def _checkpoint(self, session: Session, job_id: str, step: int) -> None:
        prefix = checkpoint_prefix(job_id, 1, step)
        self.put(f"{prefix}/weights.safetensors")
        facts = CheckpointFacts(
            job_id=job_id,
            step=step,
            attempt=1,
            epoch=1,
            reason="periodic",
            best=False,
            metrics={},
            files=(StoredFile("weights.safetensors", 7, "0" * 64),),
            storage_prefix=prefix,
        )
        add_checkpoint(session, facts, START, keep_periodic=True)
