"""The loop: it places, tells and settles; a faulty database never ends it; it needs no Redis."""

import threading
from pathlib import Path

import pytest

from app.control import Control, Pace, times_of
from app.db import Database
from app.jobs.states import JobState
from app.scheduling.run import Placed
from app.settings import load_settings
from tests.fakes import FakeClock
from tests.jobs.placing import TIMES, Scene, make_scene


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


def make_control(database: Database, ears: Ears) -> Control:
    return Control(database, TIMES, Pace(idle_s=0.05, reconcile_s=0.05), tell=ears.tell, ring=ears.ring)


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


class TestTimes:
    def test_a_host_is_offline_after_three_silent_heartbeats(self, tmp_path: Path) -> None:
        settings = load_settings({"TRAINSHED_HOME": str(tmp_path), "TRAINSHED_HEARTBEAT_S": "4"})
        assert times_of(settings).offline_after_s == 12.0
