"""Device-seconds of an attempt: devices times the time from its claim to when they were freed."""

from datetime import timedelta

import pytest

from app.db import Database
from app.errors import Cause
from app.jobs.attempts import Measured, free_devices, keep_measured
from app.jobs.charging import give_back
from app.jobs.endings import Ending, end_attempt
from app.jobs.models import Attempt
from tests.fakes import FakeClock
from tests.jobs.placing import Scene, make_scene

FAILED = Ending(succeeded=False, cause=Cause.USER_CODE)
DONE = Ending(succeeded=True)


@pytest.fixture
def scene(database: Database, clock: FakeClock) -> Scene:
    return make_scene(database, clock, devices=2, device_count=2)


def attempt(scene: Scene, number: int = 1) -> Attempt:
    with scene.database.read() as session:
        return session.get_one(Attempt, (scene.job_id, number))


def end(scene: Scene, ending: Ending, number: int = 1) -> None:
    with scene.database.write() as session:
        end_attempt(session, scene.job_id, number, ending, scene.clock.now())


class TestDeviceSeconds:
    def test_both_devices_count_from_the_claim_to_the_end(self, scene: Scene) -> None:
        scene.place()
        scene.clock.advance(10)  # until the worker takes it: not the job's doing
        scene.claim()
        scene.start()
        scene.clock.advance(25)
        end(scene, DONE)
        assert attempt(scene).device_s == 2 * 25.0

    def test_storing_files_after_they_were_freed_costs_nothing(self, scene: Scene) -> None:
        scene.run()
        scene.clock.advance(20)
        with scene.database.write() as session:
            free_devices(session, scene.job_id, 1, scene.clock.now())
        scene.clock.advance(300)
        end(scene, DONE)
        ended = attempt(scene)
        assert ended.device_s == 2 * 20.0
        assert ended.ended_at == scene.clock.now()

    def test_a_placement_that_nobody_took_costs_nothing(self, scene: Scene) -> None:
        scene.place()
        scene.clock.advance(16)
        end(scene, Ending(succeeded=False, cause=Cause.NOT_CLAIMED))
        assert attempt(scene).device_s is None

    def test_a_clock_that_was_set_back_gives_nothing_back(self, scene: Scene) -> None:
        scene.run()
        scene.clock.set_wall(-3600)
        end(scene, FAILED)
        assert attempt(scene).device_s == 0.0

    def test_a_stale_end_charges_its_own_attempt_once(self, scene: Scene) -> None:
        scene.run()
        scene.clock.advance(5)
        for seconds in (0, 50):
            now = scene.clock.now() + timedelta(seconds=seconds)
            with scene.database.write() as session:
                assert give_back(session, scene.job_id, 1, now) == (2 if seconds == 0 else 0)
        assert attempt(scene).device_s == 2 * 5.0


class TestMeasured:
    def test_is_replaced_by_what_is_known_later_and_outlives_the_end(self, scene: Scene) -> None:
        scene.run()
        for joules in (100.0, 250.0):
            with scene.database.write() as session:
                keep_measured(session, scene.job_id, 1, Measured(joules, 0.4, "input_bound"))
        end(scene, FAILED)
        found = attempt(scene)
        assert (found.energy_j, found.utilization, found.verdict) == (250.0, 0.4, "input_bound")
