"""Short ways to bring a job into a state through the real functions, never by writing columns."""

from dataclasses import dataclass

from app.accounts.models import Project
from app.db import Database
from app.fleet.models import Worker
from app.jobs.attempts import ProcessFacts, mark_running
from app.jobs.claims import claim
from app.jobs.models import Job
from app.jobs.resumption import Resumption
from app.jobs.states import JobState
from app.scheduling.run import Placed, Times, schedule
from app.spec import Column, JobSpec, TableSchema, parse_job, resolve
from tests.fakes import FakeClock
from tests.rows import add_job, add_project, add_worker

TIMES = Times(claim_s=15, lease_s=60, offline_after_s=30)
TABLE = TableSchema(
    source_kind="builtin",
    rows=1797,
    columns=[
        Column(name="pixel", kind="number", missing=0, distinct=17),
        Column(name="digit", kind="integer", missing=0, distinct=10, labels=[str(n) for n in range(10)]),
    ],
    default_target="digit",
    default_task="classification",
)
PROCESS = ProcessFacts(pid=4242, pgid=4242, started="17")


def effective_spec(framework: str = "torch") -> dict[str, object]:
    spec: JobSpec = parse_job({"framework": framework, "model": "mlp", "data": "digits", "device_count": 1})
    return resolve(spec, TABLE, "cuda").model_dump(mode="json")


@dataclass
class Scene:
    """One project, one host with devices, one job; every step takes the job further."""

    database: Database
    clock: FakeClock
    project_id: str
    worker_id: str
    job_id: str

    def add_job(self, **changes: object) -> str:
        with self.database.write() as session:
            project = session.get_one(Project, self.project_id)
            return add_job(session, project, **{"effective_spec": effective_spec(), **changes}).id

    def place(self) -> list[Placed]:
        return schedule(self.database, TIMES)

    def claim(self, attempt: int = 1, job_id: str | None = None) -> bool:
        with self.database.write() as session:
            now = self.clock.now()
            taken = claim(session, self.worker_id, "instance-1", job_id or self.job_id, attempt, now, TIMES.lease_s)
            return taken is not None

    def start(self, attempt: int = 1, job_id: str | None = None, resumed: Resumption | None = None) -> bool:
        with self.database.write() as session:
            facts = {"device_kind": "cuda", "devices": ["host-a-0"]}
            return mark_running(session, job_id or self.job_id, attempt, PROCESS, facts, self.clock.now(), resumed)

    def run(self) -> None:
        """Queued to running."""
        assert [placed.job_id for placed in self.place()] == [self.job_id]
        assert self.claim()
        assert self.start()

    def job(self, job_id: str | None = None) -> Job:
        with self.database.read() as session:
            return session.get_one(Job, job_id or self.job_id)

    def state(self, job_id: str | None = None) -> JobState:
        return JobState(self.job(job_id).state)


def make_scene(database: Database, clock: FakeClock, *, devices: int = 1, **job: object) -> Scene:
    with database.write() as session:
        project = add_project(session)
        worker: Worker = add_worker(session, devices=devices)
        made = add_job(session, project, **{"effective_spec": effective_spec(), **job})
        return Scene(database, clock, project.id, worker.id, made.id)
