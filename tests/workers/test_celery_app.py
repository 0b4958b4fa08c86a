"""The worker as a process: Celery is its doorbell, and everything else works without one."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from app.artifacts.repository import list_artifacts
from app.broker import WAKE_TASK, celery_app, queue_of
from app.db import Database
from app.fleet.models import Worker
from app.jobs.models import Attempt, AttemptNode, Job
from app.jobs.states import JobState
from app.scheduling.run import Times, schedule
from app.settings import InvalidSettings, load_settings
from app.spec import parse_job, resolve
from app.tables import builtin_schema
from tests.rows import add_job, add_project
from tests.servers import redis_server
from tests.workers.eventually import eventually
from tests.workers.worker_process import settings, worker_process
from workers.celery_app import main
from workers.host_lock import WorkerRunning
from workers.processes import all_pids, read_stat

pytestmark = pytest.mark.e2e

TIMES = Times(claim_s=15, lease_s=60, offline_after_s=30)


@pytest.fixture
def real_time(tmp_path: Path, sqlite_template: Path) -> Iterator[Database]:
    """A database whose clock is the machine's, as the worker's own process sees it."""
    path = tmp_path / "worker.db"
    shutil.copyfile(sqlite_template, path)
    database = Database(f"sqlite:///{path}", synchronous="normal")
    yield database
    database.dispose()


def worker_row(database: Database) -> Worker | None:
    with database.read() as session:
        return session.execute(select(Worker).where(Worker.host_id == "box")).scalar()


def registered(database: Database) -> Worker:
    eventually(lambda: worker_row(database) is not None, "the registration")
    worker = worker_row(database)
    assert worker is not None
    return worker


def submit_cpu_job(database: Database, **spec: object) -> str:
    raw = {"framework": "torch", "model": "mlp", "data": "digits", "device_count": 1, "device_type": "cpu", **spec}
    effective = resolve(parse_job(raw), builtin_schema("digits"), "cpu").model_dump(mode="json")
    with database.write() as session:
        now = database.now(session)
        job = add_job(
            session,
            add_project(session),
            device_type="cpu",
            effective_spec=effective,
            created_at=now,
            queued_at=now,
        )
        return job.id


def job_of(database: Database, job_id: str) -> Job:
    with database.read() as session:
        return session.get_one(Job, job_id)


def long_run(database: Database) -> str:
    """A job that would train for minutes, placed."""
    job_id = submit_cpu_job(database, hyperparameters={"epochs": 100_000})
    assert len(schedule(database, TIMES)) == 1
    return job_id


def process_group(database: Database, job_id: str) -> int:
    with database.read() as session:
        pgid = session.execute(select(AttemptNode.pgid).where(AttemptNode.job_id == job_id)).scalar_one()
    assert pgid is not None
    return pgid


def members(pgid: int) -> list[int]:
    stats = [read_stat(pid) for pid in all_pids()]
    return [stat.pid for stat in stats if stat is not None and stat.pgid == pgid]


def claimed(database: Database, job_id: str) -> bool:
    with database.read() as session:
        row = session.execute(select(Attempt).where(Attempt.job_id == job_id)).scalar()
        return row is not None and row.claimed_at is not None


class TestWorker:
    def test_it_registers_answers_a_wake_and_leaves_in_good_order(
        self, tmp_path: Path, real_time: Database, redis_url: str
    ) -> None:
        # A beat of its own would come only long after this test has given up.
        slow = {"TRAINSHED_HEARTBEAT_S": "600", "TRAINSHED_CLAIM_S": "600", "TRAINSHED_LEASE_S": "3000"}
        environment = settings(tmp_path, real_time.url, redis_url, **slow)
        with worker_process(tmp_path, environment) as worker:
            row = registered(real_time)
            eventually(lambda: worker.ready)
            job_id = submit_cpu_job(real_time)
            (placed,) = schedule(real_time, TIMES)
            assert placed.worker_id == row.id
            celery_app(redis_url).send_task(WAKE_TASK, args=[job_id, 1], queue=queue_of(row.id))
            eventually(lambda: claimed(real_time, job_id), "the claim")
            assert worker.stop() == 0

        left = worker_row(real_time)
        assert left is not None
        assert left.state == "offline"

    def test_it_never_loads_a_framework(self, tmp_path: Path, real_time: Database, redis_url: str) -> None:
        with worker_process(tmp_path, settings(tmp_path, real_time.url, redis_url)) as worker:
            registered(real_time)
            eventually(lambda: worker.ready)
            maps = worker.modules()
            assert worker.stop() == 0
        assert "libpython" in maps or "python" in maps
        assert not any(f"/{name}/" in maps for name in ("torch", "tensorflow", "keras"))

    def test_without_redis_it_beats_and_claims_all_the_same(self, tmp_path: Path, real_time: Database) -> None:
        nowhere = f"unix://{tmp_path}/no.sock"
        environment = settings(tmp_path, real_time.url, nowhere, TRAINSHED_HEARTBEAT_S="0.2")
        with worker_process(tmp_path, environment) as worker:
            registered(real_time)
            job_id = submit_cpu_job(real_time)
            assert len(schedule(real_time, TIMES)) == 1
            eventually(lambda: claimed(real_time, job_id), "the claim")
            assert worker.stop() == 0

    def test_a_broker_that_comes_later_is_used(self, tmp_path: Path, real_time: Database) -> None:
        address = tmp_path / "r.sock"
        environment = settings(tmp_path, real_time.url, f"unix://{address}")
        with worker_process(tmp_path, environment) as worker:
            row = registered(real_time)
            with redis_server(address) as server:
                eventually(lambda: worker.ready, "the connection")
                job_id = submit_cpu_job(real_time)
                schedule(real_time, TIMES)
                celery_app(server.url).send_task(WAKE_TASK, args=[], queue=queue_of(row.id))
                eventually(lambda: claimed(real_time, job_id), "the claim")
                assert worker.stop() == 0

    def test_a_forged_message_does_no_harm(self, tmp_path: Path, real_time: Database, redis_url: str) -> None:
        with worker_process(tmp_path, settings(tmp_path, real_time.url, redis_url)) as worker:
            row = registered(real_time)
            eventually(lambda: worker.ready)
            app = celery_app(redis_url)
            app.send_task(WAKE_TASK, args=["job_x", {"deep": [1]}, None], queue=queue_of(row.id))
            app.send_task("os.system", args=["true"], queue=queue_of(row.id))
            job_id = submit_cpu_job(real_time)
            schedule(real_time, TIMES)
            app.send_task(WAKE_TASK, args=[job_id, 1], queue=queue_of(row.id))
            eventually(lambda: claimed(real_time, job_id), "the claim")
            assert worker.stop() == 0

    def test_it_waits_for_the_database_and_still_leaves_when_asked(self, tmp_path: Path, redis_url: str) -> None:
        environment = settings(tmp_path, "postgresql+psycopg://nobody@/none?host=/nowhere", redis_url)
        with worker_process(tmp_path, environment) as worker:
            eventually(lambda: "database_does_not_answer" in worker.log)
            assert worker.stop() == 0

    def test_a_second_worker_of_the_host_is_refused(self, tmp_path: Path, real_time: Database, redis_url: str) -> None:
        environment = settings(tmp_path, real_time.url, redis_url)
        with worker_process(tmp_path, environment) as worker:
            registered(real_time)
            with pytest.raises(WorkerRunning, match=f"process {worker.process.pid}"):
                main(load_settings(environment))
            assert worker.stop() == 0


class TestRuns:
    """With the real launcher and trainer."""

    def quick(self, folder: Path, database: Database, redis_url: str) -> dict[str, str]:
        return settings(folder, database.url, redis_url, TRAINSHED_HEARTBEAT_S="0.2")

    def test_a_job_is_trained_and_its_model_is_stored(
        self, tmp_path: Path, real_time: Database, redis_url: str
    ) -> None:
        with worker_process(tmp_path, self.quick(tmp_path, real_time, redis_url)) as worker:
            registered(real_time)
            job_id = submit_cpu_job(real_time, hyperparameters={"epochs": 2})
            schedule(real_time, TIMES)
            eventually(lambda: JobState(job_of(real_time, job_id).state).is_final, "the end of the job")
            assert worker.stop() == 0

        job = job_of(real_time, job_id)
        assert (job.state, job.cause_detail) == ("succeeded", None)
        with real_time.read() as session:
            stored = [row for row in list_artifacts(session, job_id) if row.kind == "model"]
        assert stored
        assert all((tmp_path / "storage" / row.storage_key).stat().st_size == row.size_bytes for row in stored)

    def test_sigterm_drains_a_run_at_its_next_safe_point(
        self, tmp_path: Path, real_time: Database, redis_url: str
    ) -> None:
        with worker_process(tmp_path, self.quick(tmp_path, real_time, redis_url)) as worker:
            registered(real_time)
            job_id = long_run(real_time)
            eventually(lambda: job_of(real_time, job_id).state == "running", "the run")
            pgid = process_group(real_time, job_id)
            assert members(pgid)
            assert worker.stop() == 0

        job = job_of(real_time, job_id)
        assert (job.state, job.failures, job.losses) == ("queued", 0, 0)
        assert members(pgid) == []

    def test_a_killed_worker_takes_its_run_along_and_its_next_start_settles_it(
        self, tmp_path: Path, real_time: Database, redis_url: str
    ) -> None:
        environment = self.quick(tmp_path, real_time, redis_url)
        with worker_process(tmp_path, environment) as worker:
            registered(real_time)
            job_id = long_run(real_time)
            eventually(lambda: job_of(real_time, job_id).state == "running", "the run")
            pgid = process_group(real_time, job_id)
            assert worker.stop(signal.SIGKILL) == -signal.SIGKILL
            eventually(lambda: members(pgid) == [], "the end of the trainer")
        with worker_process(tmp_path, environment) as worker:
            # Long before the lease of 60 s ends.
            eventually(lambda: job_of(real_time, job_id).state == "queued", "the settlement")
            assert worker.stop() == 0

        assert job_of(real_time, job_id).losses == 1


class TestSettings:
    def test_no_broker_is_an_error_with_an_example(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidSettings, match=r"TRAINSHED_BROKER_URL.*redis://redis:6379/0"):
            main(load_settings(settings(tmp_path, "sqlite:///:memory:", "")))
