"""Counters of a process: they count what was committed, begin at zero, and can be asked for over HTTP."""

import socket
import urllib.request
from collections.abc import Callable
from datetime import timedelta

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import select
from sqlalchemy.orm import Session

from app import __version__, metering
from app.db import Database
from app.errors import Cause
from app.fleet.models import Worker
from app.jobs.attempts import record
from app.jobs.endings import Ending, end_attempt
from app.jobs.models import Job
from app.jobs.states import FINAL, JobState
from app.jobs.stops import request_cancel
from app.metering import exposed, on_commit
from tests.fakes import FakeClock
from tests.jobs.placing import Scene, make_scene
from tests.ports import free_ports

Value = Callable[..., float]


@pytest.fixture
def grown() -> Value:
    """By how much a sample has grown since the test began; other tests of this process have counted before."""

    def value(name: str, labels: dict[str, str]) -> float:
        found = metering.ANY.get_sample_value(name, labels)
        assert found is not None, "every series is there from the start"
        return found

    before = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in metering.ANY.collect()
        for sample in family.samples
    }
    return lambda name, **labels: value(name, labels) - before[name, tuple(sorted(labels.items()))]


@pytest.fixture
def scene(database: Database, clock: FakeClock) -> Scene:
    return make_scene(database, clock)


def lose(database: Database, work: Callable[[Session], object]) -> None:
    """Do it in a transaction that is rolled back."""

    def write() -> None:
        with database.write() as session:
            work(session)
            raise LostError

    with pytest.raises(LostError):
        write()


class LostError(Exception):
    """What a test rolls back by."""


class TestOnCommit:
    def test_acts_once_the_transaction_is_committed(self, database: Database) -> None:
        acts: list[str] = []
        with database.write() as session:
            on_commit(session, lambda: acts.append("done"))
            assert acts == []
        assert acts == ["done"]
        with database.write():
            pass
        assert acts == ["done"]

    def test_never_acts_when_it_is_lost(self, database: Database) -> None:
        acts: list[str] = []
        lose(database, lambda session: on_commit(session, lambda: acts.append("done")))
        assert acts == []


class TestJobs:
    def test_a_wait_is_counted_at_the_first_placement_from_when_it_could_start(
        self, scene: Scene, clock: FakeClock, grown: Value
    ) -> None:
        with scene.database.write() as session:
            job = session.get_one(Job, scene.job_id)
            job.not_before = clock.now() + timedelta(seconds=100)
        clock.advance(30)
        assert scene.place() == []
        clock.advance(80)
        with scene.database.write() as session:
            for worker in session.scalars(select(Worker)):
                worker.heartbeat_at = clock.now()
        assert len(scene.place()) == 1
        assert grown("trainshed_queue_wait_seconds_count") == 1
        assert grown("trainshed_queue_wait_seconds_sum") == pytest.approx(10.0)

    def test_a_second_placement_is_no_second_wait(self, scene: Scene, clock: FakeClock, grown: Value) -> None:
        scene.run()
        with scene.database.write() as session:
            end_attempt(session, scene.job_id, 1, Ending(succeeded=False, cause=Cause.WORKER_LOST), clock.now())
        assert len(scene.place()) == 1
        assert grown("trainshed_queue_wait_seconds_count") == 1

    def test_an_end_is_counted_with_its_times(self, scene: Scene, clock: FakeClock, grown: Value) -> None:
        clock.advance(5)
        scene.run()
        clock.advance(20)
        with scene.database.write() as session:
            assert end_attempt(session, scene.job_id, 1, Ending(succeeded=True), clock.now()) is JobState.SUCCEEDED
        end = {"framework": "torch", "state": "succeeded"}
        assert grown("trainshed_jobs_finished_total", **end, cause="none") == 1
        assert grown("trainshed_job_duration_seconds_sum", **end) == pytest.approx(25.0)
        assert grown("trainshed_job_run_duration_seconds_sum", **end) == pytest.approx(20.0)
        assert grown("trainshed_job_run_duration_seconds_count", **end) == 1

    def test_a_failure_is_counted_by_its_cause(self, scene: Scene, clock: FakeClock, grown: Value) -> None:
        scene.run()
        with scene.database.write() as session:
            end_attempt(session, scene.job_id, 1, Ending(succeeded=False, cause=Cause.DIVERGED), clock.now())
        assert grown("trainshed_jobs_finished_total", framework="torch", state="failed", cause="diverged") == 1
        assert grown("trainshed_job_attempts_lost_total", cause="worker_lost") == 0

    def test_one_that_waits_is_counted_when_it_is_cancelled(self, scene: Scene, clock: FakeClock, grown: Value) -> None:
        with scene.database.write() as session:
            request_cancel(session, scene.project_id, scene.job_id, clock.now())
        assert grown("trainshed_jobs_finished_total", framework="torch", state="cancelled", cause="none") == 1

    def test_a_lost_attempt_is_counted_and_its_job_is_not_over(
        self, scene: Scene, clock: FakeClock, grown: Value
    ) -> None:
        scene.run()
        with scene.database.write() as session:
            end_attempt(session, scene.job_id, 1, Ending(succeeded=False, cause=Cause.DEVICE_FAULT), clock.now())
        assert scene.state() is JobState.QUEUED
        assert grown("trainshed_job_attempts_lost_total", cause="device_fault") == 1
        assert grown("trainshed_jobs_finished_total", framework="torch", state="failed", cause="device_fault") == 0

    def test_an_end_that_is_rolled_back_is_not_counted(self, scene: Scene, clock: FakeClock, grown: Value) -> None:
        scene.run()
        ending = Ending(succeeded=True)
        lose(scene.database, lambda session: end_attempt(session, scene.job_id, 1, ending, clock.now()))
        assert grown("trainshed_jobs_finished_total", framework="torch", state="succeeded", cause="none") == 0

    def test_the_end_of_an_attempt_that_was_replaced_is_a_fenced_write(
        self, scene: Scene, clock: FakeClock, grown: Value
    ) -> None:
        scene.run()
        with scene.database.write() as session:
            assert end_attempt(session, scene.job_id, 7, Ending(succeeded=True), clock.now()) is None
            assert not record(session, scene.job_id, 7, [], {"epoch": 1}, None, clock.now())
        assert grown("trainshed_job_fenced_writes_total") == 1


class TestZeros:
    def test_every_end_that_a_job_can_have_is_there_from_the_start(self) -> None:
        assert set(metering.ENDS) == {state.value for state in FINAL}
        for cause in Cause:
            labels = {"framework": "tensorflow", "state": "failed", "cause": cause.value}
            assert metering.ANY.get_sample_value("trainshed_jobs_finished_total", labels) is not None

    def test_no_series_tells_when_a_counter_was_made(self) -> None:
        text = generate_latest(metering.together(metering.ANY, metering.CONTROL, metering.WORKER)).decode()
        assert "trainshed_jobs_finished_total{" in text
        assert "_created{" not in text

    def test_what_only_one_kind_of_process_sets_is_shown_by_no_other(self) -> None:
        names = {
            registry: {family.name for family in registry.collect()}
            for registry in (metering.ANY, metering.CONTROL, metering.WORKER)
        }
        assert "trainshed_reconciler_last_success_timestamp_seconds" in names[metering.CONTROL]
        assert "trainshed_worker_attempts" in names[metering.WORKER]
        assert len(set().union(*names.values())) == sum(map(len, names.values()))


class TestBuild:
    def test_tells_version_and_revision(self) -> None:
        metering.describe_build("0a1b2c")
        try:
            labels = {"version": __version__, "revision": "0a1b2c"}
            assert metering.ANY.get_sample_value("trainshed_build_info", labels) == 1
        finally:
            metering.describe_build("")


class TestExposed:
    def test_answers_all_registries_while_the_block_runs(self) -> None:
        one, other = CollectorRegistry(), CollectorRegistry()
        Counter("one", "One.", registry=one).inc()
        Counter("other", "Other.", registry=other).inc(2)
        port = free_ports(1)
        with (
            exposed("127.0.0.1", port, one, other),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer,
        ):
            text = answer.read().decode()
        samples = {
            sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples
        }
        assert (samples["one_total"], samples["other_total"]) == (1, 2)
        with socket.socket() as again:
            again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            again.bind(("127.0.0.1", port))

    def test_port_0_is_none(self) -> None:
        with exposed("256.0.0.1", 0, CollectorRegistry()):
            pass

    def test_a_port_that_is_taken_is_a_setting_that_is_wrong(self) -> None:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            with (
                pytest.raises(metering.MetricsPortUnusable, match=f"127.0.0.1:{port} ") as refused,
                exposed("127.0.0.1", port, CollectorRegistry()),
            ):
                pass
        assert refused.value.code == "invalid_settings"
