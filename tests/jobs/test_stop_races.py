"""Requests that meet an end, or each other, at the same moment: one row lock decides, and both are told the truth."""

import threading
from collections.abc import Callable
from functools import partial

import pytest

from app.db import Database
from app.errors import Cause
from app.jobs import journal
from app.jobs.endings import Ending, end_attempt
from app.jobs.states import JobState
from app.jobs.stops import StateConflict, request_cancel, request_pause, request_resume
from tests.fakes import FakeClock
from tests.jobs.placing import Scene, make_scene

ROUNDS = 12
Outcome = object


def together(*works: Callable[[], Outcome]) -> list[Outcome]:
    """Run the works at once; what each answered, or the error it ended with."""
    gate = threading.Barrier(len(works))
    outcomes: list[Outcome] = [None] * len(works)

    def run(number: int) -> None:
        gate.wait(20)
        try:
            outcomes[number] = works[number]()
        except Exception as error:  # noqa: BLE001 - handed to the test
            outcomes[number] = error

    threads = [threading.Thread(target=run, args=(number,)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return outcomes


def pause(scene: Scene) -> Outcome:
    with scene.database.write() as session:
        return request_pause(session, scene.project_id, scene.job_id, scene.clock.now()).done


def cancel(scene: Scene) -> Outcome:
    with scene.database.write() as session:
        return request_cancel(session, scene.project_id, scene.job_id, scene.clock.now()).done


def resume(scene: Scene) -> Outcome:
    with scene.database.write() as session:
        return request_resume(session, scene.project_id, scene.job_id, scene.clock.now()).done


def finish(scene: Scene, *, succeeded: bool = True) -> Outcome:
    with scene.database.write() as session:
        ending = Ending(succeeded=succeeded, cause=None if succeeded else Cause.DRAINED)
        return end_attempt(session, scene.job_id, 1, ending, scene.clock.now())


def again(scene: Scene) -> Scene:
    """Another job on the same host, running."""
    fresh = Scene(scene.database, scene.clock, scene.project_id, scene.worker_id, scene.add_job())
    fresh.run()
    return fresh


def journal_is_whole(scene: Scene) -> bool:
    with scene.database.read() as session:
        events = journal.read(session, scene.job_id, 0)
        last, closed = journal.head(session, scene.job_id)
    in_order = [event.seq for event in events] == list(range(1, last + 1))
    return in_order and closed == scene.state().is_final


@pytest.fixture
def scene(database: Database, clock: FakeClock) -> Scene:
    scene = make_scene(database, clock)
    scene.run()
    return scene


class TestPauseAgainstFinish:
    def test_a_success_stays_one_and_a_late_pause_is_refused(self, scene: Scene) -> None:
        for _ in range(ROUNDS):
            paused, ended = together(partial(pause, scene), partial(finish, scene))
            assert ended is JobState.SUCCEEDED
            assert paused is False or isinstance(paused, StateConflict)
            assert scene.state() is JobState.SUCCEEDED
            assert journal_is_whole(scene)
            scene = again(scene)

    def test_an_attempt_that_leaves_at_that_moment_makes_a_paused_job(self, scene: Scene) -> None:
        for _ in range(ROUNDS):
            paused, ended = together(partial(pause, scene), partial(finish, scene, succeeded=False))
            # Whichever came first: nobody asked for a pause and finds the job running again.
            assert scene.state() is JobState.PAUSED
            assert (paused, ended) in {(False, JobState.PAUSED), (True, JobState.QUEUED)}
            assert journal_is_whole(scene)
            scene = again(scene)


class TestCancelAgainstPause:
    def test_an_accepted_cancel_ends_cancelled_whatever_the_pause_was_told(self, scene: Scene) -> None:
        for _ in range(ROUNDS):
            cancelled, paused, ended = together(
                partial(cancel, scene), partial(pause, scene), partial(finish, scene, succeeded=False)
            )
            assert cancelled in {True, False}
            assert isinstance(paused, bool | StateConflict)
            assert ended in {JobState.CANCELLED, JobState.PAUSED, JobState.QUEUED}
            assert scene.state() is JobState.CANCELLED
            assert journal_is_whole(scene)
            scene = again(scene)


class TestResumeAgainstTheEndOfAPause:
    def test_the_job_is_queued_whichever_came_first(self, scene: Scene) -> None:
        for _ in range(ROUNDS):
            pause(scene)
            resumed, ended = together(partial(resume, scene), partial(finish, scene, succeeded=False))
            assert resumed is False
            assert ended in {JobState.PAUSED, JobState.QUEUED}
            assert scene.state() is JobState.QUEUED
            cancel(scene)
            scene = again(scene)
