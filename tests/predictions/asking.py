"""A job with a model's rows, and a way to ask it: what tests of tasks begin with."""

from dataclasses import dataclass

from app.artifacts.models import Artifact
from app.db import Database
from app.ids import new_id
from app.predictions.models import ModelTask
from app.predictions.states import TaskKind
from app.predictions.tasks import NewTask, Taken, Wanted, submit, take
from tests.fakes import START, FakeClock
from tests.rows import add_job, add_project, add_worker

DEADLINE_S = 60.0
INSTANCE = "instance-1"  # of the worker that `add_worker` adds


@dataclass
class Asker:
    """One project with one worker and one job, whose model is two rows without files."""

    database: Database
    clock: FakeClock
    project_id: str
    worker_id: str
    job_id: str

    def ask(
        self,
        kind: TaskKind = TaskKind.PREDICT,
        request: str = '{"rows": []}',
        *,
        max_open: int = 100,
        framework: str | None = None,
    ) -> str:
        new = NewTask(new_id("tsk"), self.project_id, self.job_id, "ada", kind, request, DEADLINE_S, framework)
        with self.database.write() as session:
            submit(session, new, self.clock.now(), max_open)
        return new.id

    def take(
        self,
        kind: TaskKind = TaskKind.PREDICT,
        requests: list[str] | None = None,
        *,
        frameworks: list[str] | None = None,
    ) -> Taken | None:
        with self.database.write() as session:
            return take(session, Wanted(kind, frameworks, requests), self.worker_id, INSTANCE, self.clock.now())

    def taken(self) -> Taken:
        """A prediction that was asked and taken."""
        self.ask()
        taken = self.take()
        assert taken is not None
        return taken

    def task(self, task_id: str) -> ModelTask:
        with self.database.read() as session:
            return session.get_one(ModelTask, task_id)


def make_asker(database: Database, clock: FakeClock) -> Asker:
    with database.write() as session:
        project = add_project(session)
        worker = add_worker(session, kind="cpu")
        job = add_job(session, project, state="succeeded", attempt=1)
        for name in ("model.json", "model.safetensors"):
            session.add(model_row(job.id, name))
        return Asker(database, clock, project.id, worker.id, job.id)


def model_row(job_id: str, name: str, **changes: object) -> Artifact:
    values: dict[str, object] = {
        "job_id": job_id,
        "name": name,
        "attempt": 1,
        "kind": "model",
        "media_type": "application/octet-stream",
        "size_bytes": 7,
        "digest": "0" * 64,
        "storage_key": f"artifacts/{job_id}/1/{name}",
        "created_at": START,
    }
    return Artifact(**(values | changes))
