"""Rows that tests need before they can begin: each function adds one row with plain values and returns it."""

from datetime import timedelta
from hashlib import sha256
from typing import TypeVar

from sqlalchemy.orm import Session

from app.accounts.models import ApiKey, Project
from app.bundles.models import Bundle
from app.datasets.models import Dataset
from app.fleet.models import Device, Worker
from app.ids import new_id
from app.jobs.models import Attempt, Job, JobHead
from app.jobs.states import JobState
from tests.fakes import START

Row = TypeVar("Row")


def add_project(session: Session, name: str = "default") -> Project:
    project = Project(id=new_id("prj"), name=name, created_at=START)
    return _added(session, project)


def add_key(session: Session, project: Project, role: str = "user", user: str = "ada") -> ApiKey:
    """A key whose secret nobody knows; `app.accounts.service.create_key` makes one that works."""
    identity = new_id("key")
    key = ApiKey(
        id=identity,
        project_id=project.id,
        user=user,
        name="test",
        role=role,
        hint="ts_test",
        digest=identity,
        created_at=START,
    )
    return _added(session, key)


def add_dataset(session: Session, project: Project, name: str = "toy.csv", **changes: object) -> Dataset:
    values: dict[str, object] = {
        "id": new_id("ds"),
        "project_id": project.id,
        "name": name,
        "format": "csv",
        "state": "ready",
        "rows": 0,
        "size_bytes": 0,
        "digest": "0" * 64,
        "storage_key": "none",
        "table": {},
        "created_by": "ada",
        "created_at": START,
    }
    return _added(session, Dataset(**(values | changes)))


def add_bundle(session: Session, project: Project, **changes: object) -> Bundle:
    """A bundle without a file; its digest is its own, since a project has each only once."""
    identity = new_id("bun")
    values: dict[str, object] = {
        "id": identity,
        "project_id": project.id,
        "digest": sha256(identity.encode()).hexdigest(),
        "name": "code.zip",
        "format": "zip",
        "size_bytes": 0,
        "unpacked_bytes": 0,
        "files": 1,
        "storage_key": "none",
        "created_by": "ada",
        "created_at": START,
    }
    return _added(session, Bundle(**(values | changes)))


def add_worker(session: Session, host_id: str = "host-a", *, devices: int = 1, kind: str = "cuda") -> Worker:
    """A worker that is online with both frameworks and `devices` healthy devices of 80 GB named `<host>-<n>`."""
    frameworks = {
        name: {"version": "1.0", "interpreter": f"/opt/{name}/bin/python"} for name in ("tensorflow", "torch")
    }
    worker = Worker(
        id=new_id("wrk"),
        host_id=host_id,
        host_name=host_id,
        instance="instance-1",
        boot_id="boot-1",
        version="0",
        frameworks=frameworks,
        started_at=START,
        heartbeat_at=START,
    )
    _added(session, worker)
    for position in range(devices):
        device = Device(
            id=f"{host_id}-{position}",
            worker_id=worker.id,
            position=position,
            kind=kind,
            name="Test card",
            pci_bus_id=f"0000:{position:02x}:00.0",
            memory_bytes=80_000_000_000,
            seen_at=START,
        )
        _added(session, device)
    return worker


def add_job(session: Session, project: Project, **changes: object) -> Job:
    """A queued job that asks for one CUDA device, with its head row; `changes` sets columns."""
    values: dict[str, object] = {
        "id": new_id("job"),
        "project_id": project.id,
        "owner": "ada",
        "key_id": new_id("key"),
        "framework": "torch",
        "state": JobState.QUEUED,
        "spec": "{}",
        "effective_spec": {},
        "device_count": 1,
        "device_type": "cuda",
        "timeout_s": 3600.0,
        "created_at": START,
        "queued_at": START,
    }
    job = _added(session, Job(**(values | changes)))
    _added(session, JobHead(job_id=job.id, attempt=job.attempt, closed=JobState(job.state).is_final))
    return job


def add_attempt(session: Session, job: Job, number: int = 1, **changes: object) -> Attempt:
    values: dict[str, object] = {
        "job_id": job.id,
        "number": number,
        "placed_at": START,
        "claim_by": START + timedelta(seconds=15),
    }
    return _added(session, Attempt(**(values | changes)))


def _added(session: Session, row: Row) -> Row:
    session.add(row)
    session.flush()
    return row
