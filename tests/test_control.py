"""The loop: it places, tells and settles; a faulty database never ends it; it needs no Redis."""

import threading
from datetime import datetime
from pathlib import Path

import pytest
from sqlalchemy import select

from app.clock import Clock
from app.control import Control, Pace, times_of
from app.db import Database
from app.jobs.states import JobState
from app.migrations_runner import upgrade
from app.predictions.models import ModelTask
from app.scheduling.run import Placed
from app.settings import load_settings
from tests.fakes import FakeClock
from tests.jobs.placing import TIMES, Scene, make_scene
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

    def test_old_predictions_are_forgotten(self, database: Database, clock: FakeClock) -> None:
        asker = make_asker(database, clock)
        asker.ask()
        clock.advance(DEADLINE_S)
        make_control(database, Ears()).reconcile_once()
        clock.advance(25 * 3600)
        make_control(database, Ears()).clean_up()
        with database.read() as session:
            assert session.execute(select(ModelTask)).all() == []

    def test_old_idempotency_keys_are_forgotten_each_hour(
        self, database: Database, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[datetime] = []

        def forget(_database: Database, now: datetime) -> int:
            asked.append(now)
            return 0

        monkeypatch.setattr("app.control.forget_keys", forget)
        control = make_control(database, Ears())
        control.clean_up()
        control.clean_up()
        assert asked == [clock.now()]
        monkeypatch.setattr("app.control._CLEANING_S", 0.0)
        control = make_control(database, Ears())
        control.clean_up()
        control.clean_up()
        assert len(asked) == 3


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
        thread = self.run(control)
        try:
            assert ears.heard.wait(10)
        finally:
            control.stop()
            thread.join(10)
        assert len(ears.told) == 1

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

    def test_a_stop_ends_the_wait(self, tmp_path: Path) -> None:
        database = Database(f"sqlite:///{tmp_path / 'new.db'}")
        control = make_control(database, Ears())
        control.stop()
        control.wait_for_schema()
        assert not (tmp_path / "new.db").exists()
        database.dispose()


class TestTimes:
    def test_a_host_is_offline_after_three_silent_heartbeats(self, tmp_path: Path) -> None:
        settings = load_settings({"TRAINSHED_HOME": str(tmp_path), "TRAINSHED_HEARTBEAT_S": "4"})
        assert times_of(settings).offline_after_s == 12.0
