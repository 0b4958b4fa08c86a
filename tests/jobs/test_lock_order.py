"""Job, head, attempt, leases: two transactions about one job wait for each other in turn, never in a circle.

PostgreSQL ends a circle by breaking one of the two, which a user sees as 503 and a worker as an outage.
"""

from datetime import datetime

import pytest
from sqlalchemy.orm import Session

from app.db import Database
from app.errors import Cause
from app.jobs.attempts import free_devices, record, set_phase
from app.jobs.checkpointing import record_checkpoint
from app.jobs.endings import Ending, end_attempt
from app.jobs.journal import Entry
from app.jobs.lifecycle import lock_job
from app.jobs.states import JobState
from app.jobs.stops import StateConflict, request_cancel, request_pause
from tests.checkpoints.facts import facts
from tests.fakes import FakeClock
from tests.jobs.placing import Scene, make_scene
from tests.jobs.waiting_for_locks import Meanwhile

ONLY_POSTGRES = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
LINES = [Entry("log", {"lines": ["bye"], "stream": "output"})]


@pytest.fixture
def scene(database: Database, clock: FakeClock) -> Scene:
    scene = make_scene(database, clock)
    scene.run()
    return scene


def write_lines(session: Session, scene: Scene, now: datetime) -> None:
    assert record(session, scene.job_id, 1, LINES, None, None, now)


@ONLY_POSTGRES
def test_log_lines_that_meet_a_cancel(scene: Scene, clock: FakeClock) -> None:
    # A row of the journal refers to the job, so writing one locks the job too, whether or not the job was locked first.
    def log() -> None:
        with scene.database.write() as session:
            write_lines(session, scene, clock.now())

    meanwhile = Meanwhile(log)
    with scene.database.write() as session:
        lock_job(session, scene.job_id)
        with meanwhile.running(scene.database):
            request_cancel(session, scene.project_id, scene.job_id, clock.now())
            session.commit()
    assert meanwhile.error is None
    assert scene.job().stop_requested == "cancel"


@ONLY_POSTGRES
class TestAgainstTheEndOfAnAttempt:
    def test_a_cancel_that_meets_the_last_log_lines(self, scene: Scene, clock: FakeClock) -> None:
        def cancel() -> None:
            with scene.database.write() as session:
                request_cancel(session, scene.project_id, scene.job_id, clock.now())

        meanwhile = Meanwhile(cancel)
        with scene.database.write() as session:
            write_lines(session, scene, clock.now())
            with meanwhile.running(scene.database):
                end_attempt(session, scene.job_id, 1, Ending(succeeded=False, cause=Cause.USER_CODE), clock.now())
                session.commit()
        assert isinstance(meanwhile.error, StateConflict), "it came second, and says so"
        assert scene.state() is JobState.FAILED

    def test_a_reconciliation_that_meets_the_beginning_of_the_upload(self, scene: Scene, clock: FakeClock) -> None:
        def settle() -> None:
            with scene.database.write() as session:
                end_attempt(session, scene.job_id, 1, Ending(succeeded=False, cause=Cause.WORKER_LOST), clock.now())

        meanwhile = Meanwhile(settle)
        with scene.database.write() as session:
            free_devices(session, scene.job_id, 1, scene.clock.now())
            with meanwhile.running(scene.database):
                assert set_phase(session, scene.job_id, 1, "uploading")
                session.commit()
        assert meanwhile.error is None
        assert scene.state() is JobState.QUEUED


@ONLY_POSTGRES
class TestCheckpoints:
    """The row of a checkpoint refers to the job, and is written with a journal entry beside the recorder's reports."""

    def keep(self, session: Session, scene: Scene, step: int, now: datetime) -> list[str] | None:
        return record_checkpoint(session, facts(scene.job_id, step), now, keep_periodic=False)

    def test_one_that_meets_a_report(self, scene: Scene, clock: FakeClock) -> None:
        def log() -> None:
            with scene.database.write() as session:
                write_lines(session, scene, clock.now())

        meanwhile = Meanwhile(log)
        with scene.database.write() as session:
            lock_job(session, scene.job_id)
            with meanwhile.running(scene.database):
                assert self.keep(session, scene, 10, clock.now()) == []
                session.commit()
        assert meanwhile.error is None

    def test_one_that_meets_a_pause(self, scene: Scene, clock: FakeClock) -> None:
        def pause() -> None:
            with scene.database.write() as session:
                request_pause(session, scene.project_id, scene.job_id, clock.now())

        meanwhile = Meanwhile(pause)
        with scene.database.write() as session:
            assert self.keep(session, scene, 10, clock.now()) == []
            with meanwhile.running(scene.database):
                assert self.keep(session, scene, 20, clock.now()) == []
                session.commit()
        assert meanwhile.error is None
        assert scene.job().stop_requested == "pause"

    def test_one_that_meets_the_end_comes_too_late_and_is_nobody_s(self, scene: Scene, clock: FakeClock) -> None:
        outcome: list[list[str] | None] = []

        def store() -> None:
            with scene.database.write() as session:
                outcome.append(self.keep(session, scene, 10, clock.now()))

        meanwhile = Meanwhile(store)
        with scene.database.write() as session:
            free_devices(session, scene.job_id, 1, scene.clock.now())
            with meanwhile.running(scene.database):
                end_attempt(session, scene.job_id, 1, Ending(succeeded=False, cause=Cause.WORKER_LOST), clock.now())
                session.commit()
        assert (meanwhile.error, outcome) == (None, [None])
