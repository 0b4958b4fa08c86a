"""The loop: it places, tells and settles; a faulty database never ends it; it needs no Redis."""

import threading
from contextlib import ExitStack
from pathlib import Path
from urllib.request import urlopen

import pytest
from celery import Celery
from kombu.exceptions import OperationalError

from app import metering
from app.beacon import CONTROL_BEACON, read_beacon
from app.clock import Clock
from app.control import Control, Pace, _teller, main, times_of
from app.db import Database
from app.jobs.states import JobState
from app.migrations_runner import SchemaNotUsable, upgrade
from app.scheduling.run import Placed
from app.settings import load_settings
from tests.api.serve import wait_until
from tests.fakes import FakeClock
from tests.jobs.placing import TIMES, Scene, make_scene
from tests.ports import free_ports
from tests.predictions.asking import DEADLINE_S, make_asker


class Ears:
    """Hears what the loop tells, and lets a test wait for it."""

    def __init__(self) -> None:
        self.told: list[Placed] = []
        self.rung: list[str] = []
        self.heard = threading.Event()

    def tell(self, placed: Placed) -> None:
        self.told.append(placed)
        self.heard.set()

    def ring(self, job_id: str) -> None:
        self.rung.append(job_id)


def make_control(database: Database, ears: Ears, clock: Clock | None = None) -> Control:
    pace = Pace(idle_s=0.05, reconcile_s=0.05)
    return Control(database, TIMES, pace, tell=ears.tell, ring=ears.ring, clock=clock)


class TestOneRound:
    def test_a_pass_places_and_tells_the_worker(self, database: Database, clock: FakeClock) -> None:
        scene, ears = make_scene(database, clock), Ears()
        placed = make_control(database, ears).pass_once()
        assert placed == ears.told == [Placed(scene.job_id, 1, scene.worker_id)]
        assert ears.rung == [scene.job_id]

    def test_reconciling_settles_and_rings(self, database: Database, clock: FakeClock) -> None:
        scene, ears = make_scene(database, clock), Ears()
        control = make_control(database, ears)
        control.pass_once()
        clock.advance(TIMES.claim_s + 1)
        control.reconcile_once()
        assert scene.state() is JobState.QUEUED
        assert ears.rung == [scene.job_id, scene.job_id]

    def test_a_clock_that_was_set_takes_nothing_from_anybody_for_one_lease(
        self, database: Database, clock: FakeClock
    ) -> None:
        scene, own = make_scene(database, clock), FakeClock()
        scene.run()
        control = make_control(database, Ears(), own)
        control.reconcile_once()
        clock.advance(300)  # the database's alone
        for _ in range(6):
            control.reconcile_once()
            assert scene.state() is JobState.RUNNING
            clock.advance(10)
            own.advance(10)
        control.reconcile_once()
        assert scene.state() is JobState.QUEUED, "its holder was really gone: it did not renew in all that time"

    def test_reconciling_also_ends_predictions_that_nobody_answered(self, database: Database, clock: FakeClock) -> None:
        asker = make_asker(database, clock)
        task_id = asker.ask()
        control = make_control(database, Ears())
        control.reconcile_once()
        assert asker.task(task_id).state == "queued"
        clock.advance(DEADLINE_S)
        make_control(database, Ears()).reconcile_once()
        assert asker.task(task_id).state == "expired"

    def test_a_hold_that_is_over_ends_and_the_loop_looks_again(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[Database] = []

        def end_one(held: Database) -> int:
            asked.append(held)
            return 1

        monkeypatch.setattr("app.control.expire", end_one)
        control = make_control(database, Ears())
        control.end_holds()
        assert asked == [database]
        assert control._bell.is_set(), "somebody may wait for its devices"

    def test_no_hold_ends_by_a_clock_that_was_just_set(
        self, database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("app.control.expire", never)
        control = make_control(database, Ears(), FakeClock())
        control.reconcile_once()
        clock.advance(300)  # the database's alone
        control.reconcile_once()
        control.end_holds()

    def test_what_went_well_is_told_by_its_time(self, database: Database, clock: FakeClock) -> None:
        make_scene(database, clock)
        for gauge in (metering.scheduler_last_success, metering.reconciler_last_success):
            gauge.set(0)
        passes = metering.CONTROL.get_sample_value("trainshed_scheduling_pass_duration_seconds_count")
        control = make_control(database, Ears())
        control.pass_once()
        assert metering.scheduler_last_success._value.get() > 0
        assert metering.reconciler_last_success._value.get() == 0
        control.reconcile_once()
        assert metering.reconciler_last_success._value.get() > 0
        assert (
            metering.CONTROL.get_sample_value("trainshed_scheduling_pass_duration_seconds_count") == (passes or 0) + 1
        )


def never(_database: Database) -> int:
    raise AssertionError("not now")


class TestLoop:
    def run(self, control: Control) -> threading.Thread:
        thread = threading.Thread(target=control.run)
        thread.start()
        return thread

    def test_it_finds_a_job_that_nobody_announced(self, database: Database, clock: FakeClock) -> None:
        ears = Ears()
        control = make_control(database, ears)
        thread = self.run(control)
        try:
            scene: Scene = make_scene(database, clock)
            assert ears.heard.wait(10), "the loop looks by itself"
        finally:
            control.stop()
            thread.join(10)
        assert not thread.is_alive()
        assert ears.told[0].job_id == scene.job_id

    @pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
    def test_a_fault_in_a_pass_does_not_end_it(
        self, database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        make_scene(database, clock)
        ears = Ears()
        control = make_control(database, ears)
        failures = iter([RuntimeError("disk"), OSError("socket")])
        real = control.pass_once

        def flaky() -> list[Placed]:
            error = next(failures, None)
            if error is not None:
                raise error
            return real()

        monkeypatch.setattr(control, "pass_once", flaky)
        monkeypatch.setattr("app.control._AFTER_FAULT_S", 0.01)
        counted = metering.step_failures.labels("schedule")._value.get()
        thread = self.run(control)
        try:
            assert ears.heard.wait(10)
        finally:
            control.stop()
            thread.join(10)
        assert len(ears.told) == 1
        assert metering.step_failures.labels("schedule")._value.get() == counted + 2

    @pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
    def test_a_queue_that_cannot_be_planned_does_not_keep_leases_from_ending(
        self, database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        scene, ears = make_scene(database, clock), Ears()
        scene.place()
        clock.advance(TIMES.claim_s + 1)
        rung = threading.Event()
        control = Control(
            database, TIMES, Pace(0.05, 0.05), tell=ears.tell, ring=lambda _job: rung.set(), clock=FakeClock()
        )

        def broken() -> list[Placed]:
            raise RuntimeError("one of the queued rows is broken")

        monkeypatch.setattr(control, "pass_once", broken)
        monkeypatch.setattr("app.control._AFTER_FAULT_S", 0.01)
        thread = self.run(control)
        try:
            assert rung.wait(10)
        finally:
            control.stop()
            thread.join(10)
        assert scene.state() is JobState.QUEUED

    @pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
    def test_it_beats_after_each_round_also_after_one_that_failed(
        self, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        beats: list[str] = []
        enough = threading.Event()

        def beat() -> None:
            beats.append("beat")
            if len(beats) > 2:
                enough.set()

        control = Control(database, TIMES, Pace(0.01, 0.01), tell=Ears().tell, ring=Ears().ring, beat=beat)
        monkeypatch.setattr(control, "reconcile_once", lambda: never(database))
        monkeypatch.setattr("app.control._AFTER_FAULT_S", 0.01)
        thread = self.run(control)
        try:
            assert enough.wait(10)
        finally:
            control.stop()
            thread.join(10)


class TestSchema:
    def test_it_waits_for_the_schema_and_then_goes_on(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path / 'new.db'}"
        database = Database(url)
        control = make_control(database, Ears())
        waiting = threading.Thread(target=control.wait_for_schema)
        waiting.start()
        waiting.join(0.2)
        assert waiting.is_alive()
        upgrade(url)
        waiting.join(20)
        assert not waiting.is_alive()
        database.dispose()

    def test_a_schema_that_never_comes_ends_it_with_a_reason(self, tmp_path: Path) -> None:
        database = Database(f"sqlite:///{tmp_path / 'new.db'}")
        pace = Pace(idle_s=0.05, reconcile_s=0.05, schema_wait_s=0.0)
        control = Control(database, TIMES, pace, tell=Ears().tell, ring=Ears().ring)
        with pytest.raises(SchemaNotUsable, match="trainshed migrate"):
            control.wait_for_schema()
        database.dispose()

    def test_a_stop_ends_the_wait(self, tmp_path: Path) -> None:
        database = Database(f"sqlite:///{tmp_path / 'new.db'}")
        control = make_control(database, Ears())
        control.stop()
        assert not control.wait_for_schema()
        assert not (tmp_path / "new.db").exists()
        database.dispose()


class TestMain:
    @pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
    def test_it_leaves_a_beacon_and_shows_its_metrics_while_it_runs(
        self, tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        port = free_ports(1)
        home = {"TRAINSHED_HOME": str(tmp_path), "TRAINSHED_DATABASE_URL": database_url}
        settings = load_settings(home | {"TRAINSHED_METRICS_PORT": str(port)})
        seen: list[str] = []

        def run(control: Control) -> None:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
                seen.append(answer.read().decode())
            control._beat()

        monkeypatch.setattr(Control, "run", run)
        monkeypatch.setattr("app.control._stop_on_signals", lambda _control: None)
        main(settings)
        (shown,) = seen
        assert "trainshed_reconciler_last_success_timestamp_seconds" in shown
        assert "trainshed_build_info" in shown
        assert "trainshed_worker_attempts" not in shown
        beacon = read_beacon(settings.effective_run_dir / CONTROL_BEACON)
        assert beacon is not None


class TestTeller:
    def test_without_a_broker_nobody_is_told_and_nothing_fails(self) -> None:
        with ExitStack() as closing:
            _teller("", closing)(Placed("job_1", 1, "wrk_1"))

    def test_what_the_broker_does_not_take_is_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OperationalError("Redis is away")  # what Celery raises, after some seconds

        monkeypatch.setattr(Celery, "send_task", refuse)
        counters = (metering.dispatch_published, metering.dispatch_failures)
        published, failures = (counter._value.get() for counter in counters)
        with ExitStack() as closing:
            _teller("redis://127.0.0.1:1/0", closing)(Placed("job_1", 1, "wrk_1"))
            wait_until(lambda: metering.dispatch_failures._value.get() > failures)
        assert metering.dispatch_published._value.get() == published

    def test_what_it_takes_is_counted(self, redis_url: str) -> None:
        published = metering.dispatch_published._value.get()
        with ExitStack() as closing:
            _teller(redis_url, closing)(Placed("job_1", 1, "wrk_1"))
            wait_until(lambda: metering.dispatch_published._value.get() == published + 1)


class TestTimes:
    def test_a_host_is_offline_after_three_silent_heartbeats(self, tmp_path: Path) -> None:
        settings = load_settings({"TRAINSHED_HOME": str(tmp_path), "TRAINSHED_HEARTBEAT_S": "4"})
        assert times_of(settings).offline_after_s == 12.0
