"""A service with something of everything in its rows and files, and a look at all of it."""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Text, select, type_coerce

from app.accounts.service import Role, create_key
from app.artifacts.models import Artifact
from app.checkpoints.repository import StoredFile
from app.checkpoints.repository import add as add_checkpoint
from app.cli.backup.making import Made, make_backup, new_file
from app.cli.backup.restoring import Restored, Target, restore
from app.cli.backup.rows import tables
from app.db import Database, JsonText
from app.fleet.models import Lease
from app.holds.models import Hold
from app.ids import new_id
from app.jobs.models import AttemptNode, JobInput, JobTag, JournalRow
from app.storage import LocalStorage, Storage
from app.storage.keys import artifact_key, bundle_key, checkpoint_prefix, dataset_key
from tests.checkpoints.facts import facts
from tests.fakes import START
from tests.predictions.asking import model_row
from tests.rows import add_attempt, add_bundle, add_dataset, add_job, add_project, add_worker

MOMENT: Final = START + timedelta(minutes=10)
"""When backups are made; they are brought back a day after."""
LATER: Final = START + timedelta(days=1)
STEPS: Final = (10, 20)
Rows = dict[str, list[dict[str, Any]]]


@dataclass
class Service:
    """A database and its storage; jobs by what they did: done, running, paused."""

    database: Database
    storage: LocalStorage
    folder: Path
    secret: str = ""
    project_id: str = ""
    jobs: dict[str, str] = field(default_factory=dict)

    @property
    def running(self) -> str:
        return self.jobs["running"]

    def put(self, key: str, content: bytes) -> None:
        path = self.folder / "source"
        path.write_bytes(content)
        self.storage.put(key, path)

    def rows(self) -> Rows:
        return all_rows(self.database)

    def files(self) -> dict[str, bytes]:
        return all_files(self.storage)

    def backup(self, target: Path, storage: Storage | None = None, *, with_storage: bool = True) -> Made:
        chosen = (storage or self.storage) if with_storage else None
        with new_file(target) as (stream, scratch):
            return make_backup(self.database, chosen, stream, scratch, MOMENT)


def populate(service: Service) -> None:
    """One of everything: unusual text, numbers, times and nulls among it."""
    with service.database.write() as session:
        project = add_project(session, "birds ✓")
        key, service.secret = create_key(
            session, project=project.name, user="ada", name="laptop", role=Role.ADMIN, now=START, permissions=["code"]
        )
        service.project_id = project.id
        worker = add_worker(session, devices=2)
        source = new_id("ds")
        add_dataset(session, project, id=source, storage_key=dataset_key(source), table={"columns": ["é\n", 1.5]})
        add_dataset(session, project, "scan.csv", storage_key="", uri="root://scans/scan.csv")
        done = add_job(session, project, state="succeeded", attempt=1, run_s=1.25, dataset_id=source, key_id=key.id)
        bundle = new_id("bun")
        add_bundle(session, project, id=bundle, storage_key=bundle_key(bundle))
        session.add(JobInput(job_id=done.id, resource_id=bundle))
        add_attempt(session, done, ended_at=START, energy_j=12.5, facts={"devices": 1})
        session.add(JobTag(job_id=done.id, key="team", value="birds"))
        session.add(JournalRow(job_id=done.id, seq=1, attempt=1, kind="log", at=START, data='{"line": "a\\u0000b"}'))
        name = artifact_key(done.id, 1, "model.safetensors")
        session.add(model_row(done.id, "model.safetensors", storage_key=name))
        running = add_job(session, project, state="running", attempt=1, started_at=START, losses=1)
        add_attempt(session, running, claimed_at=START, started_at=START)
        session.add(
            AttemptNode(
                job_id=running.id, attempt=1, worker_id=worker.id, instance="instance-1", devices=[{"id": "host-a-0"}]
            )
        )
        session.add(lease(worker.id, running.id, "host-a-0", 1))
        paused = add_job(session, project, state="paused", not_before=LATER, best_metrics={"loss": 0.125})
        hold = Hold(
            id=new_id("hold"),
            project_id=project.id,
            owner="ada",
            key_id=key.id,
            note="notebook",
            worker_id=worker.id,
            devices=[{"id": "host-a-1"}],
            created_at=START,
            until=LATER,
        )
        session.add(hold)
        session.add(lease(worker.id, hold.id, "host-a-1", 0))
        service.jobs = {"done": done.id, "running": running.id, "paused": paused.id}
        for step in STEPS:
            store_checkpoint(service, session, step)
    service.put(dataset_key(source), b"a,b\n1,2\n")
    service.put(bundle_key(bundle), b"PK")
    service.put(name, bytes(range(256)) * 5000)


def store_checkpoint(service: Service, session: Any, step: int) -> None:
    """Of the running job: two files, and their row."""
    prefix = checkpoint_prefix(service.running, 1, step)
    contents = {name: f"{name} of step {step}".encode() for name in ("weights.safetensors", "manifest.json")}
    files = tuple(
        StoredFile(name, len(content), hashlib.sha256(content).hexdigest()) for name, content in contents.items()
    )
    for name, content in contents.items():
        service.put(f"{prefix}/{name}", content)
    stored = facts(service.running, step, files=files, storage_prefix=prefix)
    added = add_checkpoint(session, stored, START + timedelta(seconds=step), keep_periodic=False)
    assert added is not None
    for key in added.unnamed:
        service.storage.delete(key)


def lease(worker_id: str, job_id: str, device_id: str, attempt: int) -> Lease:
    return Lease(device_id=device_id, worker_id=worker_id, job_id=job_id, attempt=attempt, epoch=1, expires_at=LATER)


def artifact_key_of(service: Service) -> str:
    with service.database.read() as session:
        return session.scalars(select(Artifact.storage_key)).one()


def all_rows(database: Database) -> Rows:
    """Every row of every table that a backup has; JSON as the text that it is."""
    with database.read() as session:
        found = {}
        for table in tables():
            columns = [
                type_coerce(column, Text) if isinstance(column.type, JsonText) else column for column in table.columns
            ]
            rows = session.execute(select(*columns).order_by(*table.primary_key))
            found[str(table.name)] = [dict(zip(table.columns.keys(), row, strict=True)) for row in rows]
        return found


def all_files(storage: Storage) -> dict[str, bytes]:
    found = {}
    for key in storage.list():
        path = storage.local_path(key)
        assert path is not None
        found[key] = path.read_bytes()
    return found


def bring_back(backup: Path, url: str, storage: Storage | None, *, replace: bool = False) -> Restored:
    with opened(url) as database, backup.open("rb") as stream:
        scratch = backup.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        return restore(stream, backup, Target(database, storage, scratch, replace), LATER)


@contextmanager
def opened(url: str) -> Iterator[Database]:
    database = Database(url, synchronous="normal")
    try:
        yield database
    finally:
        database.dispose()
