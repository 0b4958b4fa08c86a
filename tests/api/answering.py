"""A worker that answers tasks of the API's tests from a thread, with what the test tells it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from app.accounts.models import Project
from app.artifacts.models import Artifact
from app.db import Database
from app.predictions.states import TaskKind
from app.predictions.tasks import Taken, Wanted, fail, succeed, take
from app.storage import Storage
from tests.api.client import Tenant
from tests.predictions.asking import INSTANCE, model_row
from tests.rows import add_job, add_worker

Answer = dict[str, Any]
"""A result, or under the one key `error` how the task fails."""
EVERY = [Wanted(kind, frameworks) for kind in TaskKind for frameworks in (None, ["tensorflow", "torch"])]
CLASSES = {"labels": ["setosa"], "probabilities": [{"setosa": 0.75, "virginica": 0.25}], "warnings": []}


def add_job_with_model(database: Database, tenant: Tenant, *, model: bool = True, **changes: Any) -> str:
    """A job that has ended with a model, whose files nobody looks at."""
    with database.write() as session:
        project = session.get_one(Project, tenant.project_id)
        job = add_job(session, project, **{"state": "succeeded", "attempt": 1, "device_type": "cpu", **changes})
        for name in ("model.json", "model.safetensors") if model else ():
            session.add(model_row(job.id, name))
        return job.id


def add_online_worker(database: Database, host: str = "host-a") -> str:
    with database.write() as session:
        return add_worker(session, host, kind="cpu").id


@contextmanager
def answering(database: Database, answer: Callable[[Taken], Answer]) -> Iterator[list[Taken]]:
    """Answers every task while the block runs; the list grows by what was taken."""
    worker_id = add_online_worker(database)
    stop = threading.Event()
    seen: list[Taken] = []

    def work() -> None:
        while not stop.wait(0.005):
            for wanted in EVERY:
                with database.write() as session:
                    taken = take(session, wanted, worker_id, INSTANCE, database.now(session))
                if taken is not None:
                    seen.append(taken)
                    _write(database, taken, answer(taken))

    thread = threading.Thread(target=work, name="answering")
    thread.start()
    try:
        yield seen
    finally:
        stop.set()
        thread.join()


def _write(database: Database, taken: Taken, answer: Answer) -> None:
    with database.write() as session:
        now = database.now(session)
        if "error" in answer:
            fail(session, taken, answer["error"], now)
        else:
            succeed(session, taken, orjson.dumps(answer).decode(), now)


def store(database: Database, storage: Storage, row: Artifact, content: bytes, folder: Path) -> None:
    """A stored file with its row."""
    source = folder / f"source-{row.name}"
    source.write_bytes(content)
    storage.put(row.storage_key, source)
    with database.write() as session:
        session.add(row)
