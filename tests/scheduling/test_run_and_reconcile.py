"""Passes and reconciliations on a real database, with a clock that the test moves."""

import threading
from datetime import timedelta

import pytest
from sqlalchemy import func, select
from sqlalchemy.exc import IntegrityError

from app.db import Database
from app.errors import Cause
from app.fleet.models import Device, Lease, Worker
from app.fleet.registry import heartbeat
from app.jobs import journal
from app.jobs.attempts import free_devices, record, set_phase
from app.jobs.endings import Ending, end_attempt
from app.jobs.models import Attempt, AttemptNode, JobHead
from app.jobs.states import JobState
from app.jobs.stops import request_cancel
from app.scheduling.queue import waiting_jobs
from app.scheduling.reconcile import due_hints, reconcile
from app.scheduling.run import Placed, schedule
from tests.fakes import FakeClock
from tests.jobs.placing import TIMES, Scene, make_scene


@pytest.fixture
def scene(database: Database, clock: FakeClock) -> Scene:
    return make_scene(database, clock)


class TestSchedule:
    def test_a_placement_is_an_attempt_a_node_a_lease_and_a_journal_entry(self, scene: Scene) -> None:
        assert scene.place() == [Placed(scene.job_id, 1, scene.worker_id)]
        with scene.database.read() as session:
            attempt = session.get_one(Attempt, (scene.job_id, 1))
            node = session.get_one(AttemptNode, (scene.job_id, 1, scene.worker_id))
            lease = session.get_one(Lease, "host-a-0")
            device = session.get_one(Device, "host-a-0")
            (event,) = journal.read(session, scene.job_id, after=0)
        assert (attempt.claim_by - scene.clock.now()).total_seconds() == TIMES.claim_s
        assert node.devices[0]["id"] == "host-a-0"
        assert (lease.job_id, lease.attempt, lease.epoch, device.epoch) == (scene.job_id, 1, 1, 1)
        assert (event.attempt, event.kind) == (1, "state")
        assert scene.state() is JobState.STARTING

    def test_the_epoch_of_a_device_grows_with_every_lease(self, scene: Scene) -> None:
        for number in (1, 2, 3):
            scene.place()
            scene.clock.advance(TIMES.claim_s + 1)
            with scene.database.write() as session:
                session.get_one(Worker, scene.worker_id).heartbeat_at = scene.clock.now()
            reconcile(scene.database, TIMES)
            with scene.database.read() as session:
                assert session.get_one(Device, "host-a-0").epoch == number

    def test_a_new_attempt_does_not_show_what_a_lost_one_had_reached(self, scene: Scene) -> None:
        scene.run()
        with scene.database.write() as session:
            record(session, scene.job_id, 1, [], {"epoch": 9}, {"val_loss": 0.1}, scene.clock.now())
            end_attempt(session, scene.job_id, 1, Ending(succeeded=False, cause=Cause.WORKER_LOST), scene.clock.now())
        assert scene.job().best_metrics == {"val_loss": 0.1}, "while it waits, the last try is all there is to show"
        assert len(scene.place()) == 1
        assert scene.claim(attempt=2)
        assert scene.start(attempt=2)
        job = scene.job()
        assert (job.progress, job.last_metrics, job.best_metrics) == (None, None, None), "there was no checkpoint"

    def test_eight_passes_at_once_place_each_job_once(self, database: Database, clock: FakeClock) -> None:
        scene = make_scene(database, clock, devices=3)
        for _ in range(9):
            scene.add_job()
        found: list[Placed] = []
        threads = [threading.Thread(target=lambda: found.extend(schedule(database, TIMES))) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == len({placed.job_id for placed in found}) == 3

    def test_the_database_itself_refuses_a_second_holder(self, scene: Scene) -> None:
        scene.place()
        with scene.database.read() as session:
            held = session.get_one(Lease, "host-a-0")
        second = Lease(
            device_id=held.device_id,
            worker_id=held.worker_id,
            job_id="job_other",
            attempt=1,
            epoch=2,
            expires_at=held.expires_at,
        )
        with pytest.raises(IntegrityError), scene.database.write() as session:
            session.add(second)

    def test_a_silent_host_gets_nothing(self, scene: Scene) -> None:
        scene.clock.advance(TIMES.offline_after_s + 1)
        assert scene.place() == []


class TestDepth:
    def test_jobs_that_cannot_start_never_hide_the_others(self, scene: Scene) -> None:
        ready = scene.clock.now()
        with scene.database.write() as session:
            session.get_one(Worker, scene.worker_id).frameworks = {"torch": {}}
        for _ in range(4):
            scene.add_job(framework="tensorflow", priority=5)
            scene.add_job(not_before=ready + timedelta(days=1), priority=5)
        with scene.database.read() as session:
            seen = waiting_jobs(session, ready, depth=2)
        assert sorted(str(job.framework) for job in seen) == ["tensorflow", "tensorflow", "torch"]
        assert [placed.job_id for placed in scene.place()] == [scene.job_id]

    def test_a_job_that_overtook_by_its_age_is_seen_behind_any_number_of_newer_ones(self, scene: Scene) -> None:
        # Priority -1 and seven hours of waiting make class 0, and the age decides: the plan puts it first.
        now = scene.clock.now()
        old = scene.add_job(priority=-1, queued_at=now - timedelta(hours=7))
        for _ in range(5):
            scene.add_job()
        with scene.database.read() as session:
            seen = waiting_jobs(session, now, depth=3)
        assert old in {job.id for job in seen}
        assert len(seen) == 4
        assert [placed.job_id for placed in scene.place()] == [old]

    def test_a_later_start_is_kept(self, scene: Scene) -> None:
        scene.place()
        later = scene.add_job(not_before=scene.clock.now() + timedelta(seconds=5))
        with scene.database.write() as session:
            end_attempt(session, scene.job_id, 1, Ending(succeeded=False, cause=Cause.USER_CODE), scene.clock.now())
        assert scene.place() == []
        scene.clock.advance(5)
        assert [placed.job_id for placed in scene.place()] == [later]


class TestUnclaimed:
    def test_it_goes_back_to_its_old_place_and_spends_nothing(self, scene: Scene) -> None:
        before = scene.job().queued_at
        scene.place()
        scene.clock.advance(TIMES.claim_s + 0.1)
        (settled,) = reconcile(scene.database, TIMES)
        assert (settled.job_id, settled.cause) == (scene.job_id, Cause.NOT_CLAIMED)
        job = scene.job()
        assert (job.state, job.queued_at, job.failures, job.losses) == ("queued", before, 0, 0)
        with scene.database.read() as session:
            assert session.scalar(select(func.count()).select_from(Lease)) == 0

    def test_not_a_moment_too_early(self, scene: Scene) -> None:
        scene.place()
        scene.clock.advance(TIMES.claim_s)
        assert reconcile(scene.database, TIMES) == []


class TestLost:
    def test_an_expired_lease_ends_the_attempt_and_the_job_runs_again(self, scene: Scene) -> None:
        scene.run()
        scene.clock.advance(TIMES.lease_s + 0.1)
        (settled,) = reconcile(scene.database, TIMES)
        assert settled.cause is Cause.WORKER_LOST
        assert (scene.job().state, scene.job().losses) == ("queued", 1)
        with scene.database.write() as session:
            heartbeat(session, scene.worker_id, "instance-1", scene.clock.now(), TIMES.lease_s)
        assert [placed.attempt for placed in scene.place()] == [2]

    def test_a_heartbeat_keeps_it_alive_for_ever(self, scene: Scene) -> None:
        scene.run()
        for _ in range(10):
            scene.clock.advance(50)
            with scene.database.write() as session:
                heartbeat(session, scene.worker_id, "instance-1", scene.clock.now(), TIMES.lease_s)
            assert reconcile(scene.database, TIMES) == []

    def test_the_budget_of_losses_ends_in_failed(self, scene: Scene) -> None:
        for attempt in range(1, 5):
            scene.clock.advance(60)
            with scene.database.write() as session:
                heartbeat(session, scene.worker_id, "instance-1", scene.clock.now(), TIMES.lease_s)
            scene.place()
            assert scene.claim(attempt)
            scene.clock.advance(TIMES.lease_s + 1)
            assert len(reconcile(scene.database, TIMES)) == 1
        job = scene.job()
        assert (job.state, job.cause, job.losses) == ("failed", "worker_lost", 4)

    def test_a_host_that_dies_while_it_stores_files_is_noticed_without_a_lease(self, scene: Scene) -> None:
        scene.run()
        with scene.database.write() as session:
            free_devices(session, scene.job_id, 1, scene.clock.now())
            set_phase(session, scene.job_id, 1, "uploading")
        assert reconcile(scene.database, TIMES) == []
        scene.clock.advance(TIMES.lease_s + 0.1)
        assert [item.cause for item in reconcile(scene.database, TIMES)] == [Cause.WORKER_LOST]

    def test_one_that_cannot_be_ended_keeps_no_other_waiting(self, database: Database, clock: FakeClock) -> None:
        scene = make_scene(database, clock, devices=2)
        other = scene.add_job()
        scene.place()
        with database.write() as session:
            broken = min(scene.job_id, other)
            session.get_one(JobHead, broken).attempt = 7  # as if a fault of ours had torn the two rows apart
        clock.advance(TIMES.claim_s + 1)
        assert [item.job_id for item in reconcile(database, TIMES)] == [max(scene.job_id, other)]

    def test_a_cancelled_job_of_a_dead_worker_ends_cancelled(self, scene: Scene) -> None:
        scene.run()
        with scene.database.write() as session:
            request_cancel(session, scene.project_id, scene.job_id, scene.clock.now())
        scene.clock.advance(TIMES.lease_s + 1)
        reconcile(scene.database, TIMES)
        assert scene.state() is JobState.CANCELLED


class TestHints:
    def test_a_placement_is_told_again_until_it_is_claimed(self, scene: Scene) -> None:
        (placed,) = scene.place()
        assert due_hints(scene.database, 3) == []
        scene.clock.advance(3.1)
        assert due_hints(scene.database, 3) == [placed]
        assert due_hints(scene.database, 3) == [], "not twice at once"
        scene.claim()
        scene.clock.advance(3.1)
        assert due_hints(scene.database, 3) == []

    def test_a_stop_request_of_a_running_attempt_is_told(self, scene: Scene) -> None:
        scene.run()
        with scene.database.write() as session:
            request_cancel(session, scene.project_id, scene.job_id, scene.clock.now())
        told = [Placed(scene.job_id, 1, scene.worker_id)]
        assert due_hints(scene.database, 3) == told, "at once, although the placement was told just now"
        assert due_hints(scene.database, 3) == [], "not with every ring of every submit"
        scene.clock.advance(3.1)
        assert due_hints(scene.database, 3) == told
