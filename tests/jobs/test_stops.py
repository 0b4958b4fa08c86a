"""Cancel: at once where nothing runs, kept as a request where something does, refused after the end."""

import pytest

from app.db import Database
from app.errors import Cause, NotFound
from app.fleet.models import Lease
from app.jobs import journal
from app.jobs.endings import Ending, end_attempt
from app.jobs.states import JobState
from app.jobs.stops import StateConflict, StopOutcome, request_cancel
from tests.fakes import FakeClock
from tests.jobs.placing import Scene, make_scene
from tests.rows import add_project


@pytest.fixture
def scene(database: Database, clock: FakeClock) -> Scene:
    return make_scene(database, clock)


def cancel(scene: Scene, project_id: str | None = None) -> StopOutcome:
    with scene.database.write() as session:
        return request_cancel(session, project_id or scene.project_id, scene.job_id, scene.clock.now())


class TestCancel:
    def test_a_queued_job_ends_at_once(self, scene: Scene) -> None:
        outcome = cancel(scene)
        assert outcome.done
        assert (outcome.job.state, outcome.job.finished_at) == ("cancelled", scene.clock.now())
        assert scene.place() == []

    def test_a_placed_but_unclaimed_job_ends_at_once_and_frees_its_device(self, scene: Scene) -> None:
        scene.place()
        assert cancel(scene).done
        assert not scene.claim()
        with scene.database.read() as session:
            assert session.query(Lease).count() == 0

    def test_a_running_job_is_asked_and_ends_cancelled(self, scene: Scene) -> None:
        scene.run()
        outcome = cancel(scene)
        assert not outcome.done
        assert (outcome.job.state, outcome.job.stop_requested) == ("running", "cancel")
        with scene.database.write() as session:
            state = end_attempt(session, scene.job_id, 1, Ending(succeeded=True), scene.clock.now())
        assert state is JobState.CANCELLED

    def test_repeating_is_harmless_and_journals_once(self, scene: Scene) -> None:
        scene.run()
        cancel(scene)
        with scene.database.read() as session:
            before = journal.head(session, scene.job_id)
        assert not cancel(scene).done
        with scene.database.read() as session:
            assert journal.head(session, scene.job_id) == before

    def test_a_cancelled_job_may_be_cancelled_again(self, scene: Scene) -> None:
        cancel(scene)
        assert cancel(scene).done

    @pytest.mark.parametrize("succeeded", [True, False])
    def test_after_another_end_it_is_refused_with_the_state(self, scene: Scene, *, succeeded: bool) -> None:
        scene.run()
        with scene.database.write() as session:
            ending = Ending(succeeded=succeeded, cause=None if succeeded else Cause.USER_CODE)
            end_attempt(session, scene.job_id, 1, ending, scene.clock.now())
        with pytest.raises(StateConflict, match="there is nothing to cancel") as refused:
            cancel(scene)
        assert refused.value.state is scene.state()

    def test_another_project_s_job_does_not_exist(self, scene: Scene) -> None:
        with scene.database.write() as session:
            other = add_project(session, "other").id
        with pytest.raises(NotFound):
            cancel(scene, other)
        assert scene.state() is JobState.QUEUED
