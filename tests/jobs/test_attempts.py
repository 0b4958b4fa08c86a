"""Claims, reports and what a worker is told: only the current attempt of the current instance may speak."""

import pytest

from app.db import Database
from app.errors import Cause
from app.fleet import registry
from app.fleet.models import Lease, Worker
from app.jobs import journal
from app.jobs.attempts import attention, free_devices, open_attempts, record, set_phase
from app.jobs.claims import claim
from app.jobs.endings import Ending, end_attempt
from app.jobs.models import Attempt, Job
from app.jobs.resumption import is_better
from app.jobs.states import JobState, StopRequest
from app.jobs.stops import request_cancel
from tests.fakes import FakeClock
from tests.jobs.placing import TIMES, Scene, make_scene
from tests.rows import add_worker


@pytest.fixture
def scene(database: Database, clock: FakeClock) -> Scene:
    return make_scene(database, clock, devices=2)


class TestClaim:
    def test_the_first_of_three_deliveries_wins(self, scene: Scene) -> None:
        scene.place()
        assert [scene.claim(), scene.claim(), scene.claim()] == [True, False, False]

    def test_it_carries_what_the_attempt_needs(self, scene: Scene) -> None:
        scene.place()
        with scene.database.write() as session:
            taken = claim(session, scene.worker_id, "instance-1", scene.job_id, 1, scene.clock.now(), 60)
        assert taken is not None
        assert taken.builtin == "digits"
        assert taken.dataset_key is None
        assert taken.spec.framework == "torch"
        assert [device.id for device in taken.devices] == ["host-a-0"]
        assert taken.remaining_s == 3600.0
        assert taken.stop is None

    def test_it_extends_the_lease(self, scene: Scene) -> None:
        scene.place()
        scene.clock.advance(10)
        assert scene.claim()
        with scene.database.read() as session:
            lease = session.get_one(Lease, "host-a-0")
        assert (lease.expires_at - scene.clock.now()).total_seconds() == TIMES.lease_s

    def test_nothing_is_claimed_for_another_attempt_or_after_the_end(self, scene: Scene) -> None:
        scene.place()
        assert not scene.claim(attempt=2)
        assert not scene.claim(job_id="job_00000000000000000000000000")
        assert scene.claim()
        with scene.database.write() as session:
            ending = Ending(succeeded=False, cause=Cause.USER_CODE)
            assert end_attempt(session, scene.job_id, 1, ending, scene.clock.now()) is JobState.FAILED
        assert not scene.claim()

    def test_neither_a_replaced_instance_nor_another_worker_may_claim(self, scene: Scene) -> None:
        scene.place()
        now = scene.clock.now()
        with scene.database.write() as session:
            stranger = add_worker(session, "host-b").id
            assert claim(session, stranger, "instance-1", scene.job_id, 1, now, 60) is None
            session.get_one(Worker, scene.worker_id).instance = "instance-2"
            session.flush()
            assert claim(session, scene.worker_id, "instance-1", scene.job_id, 1, now, 60) is None
            assert claim(session, scene.worker_id, "instance-2", scene.job_id, 1, now, 60) is not None


class TestAttention:
    def test_it_names_unclaimed_placements_and_then_stop_requests(self, scene: Scene) -> None:
        scene.place()
        with scene.database.read() as session:
            assert attention(session, scene.worker_id).unclaimed == [(scene.job_id, 1)]
        scene.claim()
        scene.start()
        with scene.database.write() as session:
            outcome = request_cancel(session, scene.project_id, scene.job_id, scene.clock.now())
        assert not outcome.done
        with scene.database.read() as session:
            told = attention(session, scene.worker_id)
        assert told.unclaimed == []
        assert told.stops == {(scene.job_id, 1): StopRequest.CANCEL}

    def test_another_worker_hears_nothing_of_it(self, scene: Scene) -> None:
        scene.place()
        with scene.database.read() as session:
            assert attention(session, "wrk_00000000000000000000000000").unclaimed == []


class TestRecord:
    def entry(self, value: float = 0.5) -> journal.Entry:
        return journal.Entry("metric", {"points": {"loss": {"step": [1], "epoch": [1], "value": [value]}}})

    def test_it_keeps_progress_newest_and_best_metrics(self, scene: Scene) -> None:
        scene.run()
        for epoch, loss in enumerate([0.9, 0.4, 0.6], start=1):
            with scene.database.write() as session:
                metrics = {"val_loss": loss, "epoch": epoch}
                assert record(
                    session, scene.job_id, 1, [self.entry(loss)], {"epoch": epoch}, metrics, scene.clock.now()
                )
        job = scene.job()
        assert job.progress == {"epoch": 3}
        assert job.last_metrics == {"val_loss": 0.6, "epoch": 3}
        assert job.best_metrics == {"val_loss": 0.4, "epoch": 2}

    def test_a_stale_attempt_writes_neither_journal_nor_progress(self, scene: Scene) -> None:
        scene.run()
        with scene.database.write() as session:
            state = end_attempt(session, scene.job_id, 1, Ending(succeeded=False), scene.clock.now())
        assert state is JobState.QUEUED
        scene.place()
        with scene.database.write() as session:
            now = scene.clock.now()
            assert not record(session, scene.job_id, 1, [self.entry()], {"epoch": 9}, {"loss": 1.0}, now)
            assert not record(session, scene.job_id, 1, [self.entry()], None, None, now)
            assert not set_phase(session, scene.job_id, 1, "uploading")
        assert scene.job().progress is None
        assert scene.job().phase is None

    def test_better_means_a_lower_validation_loss_else_a_lower_loss(self) -> None:
        assert is_better({"loss": 1.0}, None)
        assert is_better({"loss": 1.0, "val_loss": 0.2}, {"val_loss": 0.3})
        assert not is_better({"loss": 0.1, "val_loss": 0.4}, {"val_loss": 0.3})
        assert not is_better({"loss": "NaN"}, None)


class TestOpenAttempts:
    def test_it_lists_what_this_worker_claimed_and_did_not_end(self, scene: Scene) -> None:
        scene.place()
        with scene.database.read() as session:
            assert open_attempts(session, scene.worker_id) == []
        scene.claim()
        scene.start()
        with scene.database.read() as session:
            (found,) = open_attempts(session, scene.worker_id)
        assert (found.job_id, found.attempt, found.instance) == (scene.job_id, 1, "instance-1")
        assert (found.pid, found.process_started, found.devices) == (4242, "17", ["host-a-0"])


class TestFreeDevices:
    def test_devices_are_free_while_files_are_stored(self, scene: Scene) -> None:
        scene.run()
        with scene.database.write() as session:
            free_devices(session, scene.job_id, 1, scene.clock.now())
            assert set_phase(session, scene.job_id, 1, "uploading")
        with scene.database.read() as session:
            assert session.query(Lease).count() == 0
            assert session.get_one(Job, scene.job_id).phase == "uploading"

    def test_releasing_twice_or_for_another_attempt_frees_nothing_else(self, scene: Scene) -> None:
        scene.run()
        with scene.database.write() as session:
            assert registry.release(session, scene.job_id, 2) == 0
            assert registry.release(session, scene.job_id, 1) == 1
            assert registry.release(session, scene.job_id, 1) == 0


class TestStarted:
    def test_the_facts_of_the_trainer_are_kept(self, scene: Scene) -> None:
        scene.run()
        with scene.database.read() as session:
            attempt = session.get_one(Attempt, (scene.job_id, 1))
        assert attempt.facts == {"device_kind": "cuda", "devices": ["host-a-0"]}
        assert attempt.started_at == scene.clock.now()
        assert scene.state() is JobState.RUNNING
        assert not scene.start(), "running is entered once"
