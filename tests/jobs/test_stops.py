"""Stops and the way back: at once where nothing runs, kept as a request where something does, refused after the end."""

import orjson
import pytest

from app.db import Database
from app.errors import Cause, NotFound
from app.fleet.models import Lease, Worker
from app.jobs import journal
from app.jobs.endings import Ending, end_attempt
from app.jobs.states import FINAL, JobState
from app.jobs.stops import LEGAL, StateConflict, StopOutcome, request_cancel, request_pause, request_resume
from tests.fakes import FakeClock
from tests.jobs.placing import Scene, make_scene
from tests.rows import add_project


@pytest.fixture
def scene(database: Database, clock: FakeClock) -> Scene:
    return make_scene(database, clock)


def cancel(scene: Scene, project_id: str | None = None) -> StopOutcome:
    with scene.database.write() as session:
        return request_cancel(session, project_id or scene.project_id, scene.job_id, scene.clock.now())


def pause(scene: Scene, project_id: str | None = None) -> StopOutcome:
    with scene.database.write() as session:
        return request_pause(session, project_id or scene.project_id, scene.job_id, scene.clock.now())


def resume(scene: Scene, project_id: str | None = None) -> StopOutcome:
    with scene.database.write() as session:
        return request_resume(session, project_id or scene.project_id, scene.job_id, scene.clock.now())


def end(scene: Scene, ending: Ending, attempt: int = 1) -> JobState | None:
    with scene.database.write() as session:
        return end_attempt(session, scene.job_id, attempt, ending, scene.clock.now())


def notices(scene: Scene) -> list[str]:
    with scene.database.read() as session:
        events = journal.read(session, scene.job_id, 0, kind="notice")
    return [str(orjson.loads(event.text)["code"]) for event in events]


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
        assert refused.value.legal == (["clone"] if succeeded else ["retry", "clone"])

    def test_another_project_s_job_does_not_exist(self, scene: Scene) -> None:
        with scene.database.write() as session:
            other = add_project(session, "other").id
        with pytest.raises(NotFound):
            cancel(scene, other)
        assert scene.state() is JobState.QUEUED

    def test_a_paused_job_ends_at_once(self, scene: Scene) -> None:
        pause(scene)
        assert cancel(scene).done
        assert scene.state() is JobState.CANCELLED


class TestPause:
    def test_a_queued_job_is_paused_at_once_and_not_placed(self, scene: Scene) -> None:
        outcome = pause(scene)
        assert (outcome.done, outcome.job.state, outcome.job.finished_at) == (True, "paused", None)
        assert scene.place() == []

    def test_a_placed_but_unclaimed_job_is_paused_at_once_and_frees_its_device(self, scene: Scene) -> None:
        scene.place()
        outcome = pause(scene)
        assert (outcome.done, outcome.job.state, outcome.job.stop_requested) == (True, "paused", None)
        assert not scene.claim()
        with scene.database.read() as session:
            assert session.query(Lease).count() == 0

    def test_a_running_job_is_asked_and_paused_when_its_attempt_has_left(self, scene: Scene) -> None:
        scene.run()
        outcome = pause(scene)
        assert (outcome.done, outcome.job.state, outcome.job.stop_requested) == (False, "running", "pause")
        assert end(scene, Ending(succeeded=False)) is JobState.PAUSED
        assert scene.job().stop_requested is None, "it is carried out; the next attempt is not to be stopped by it"

    def test_one_that_was_done_before_has_succeeded(self, scene: Scene) -> None:
        scene.run()
        pause(scene)
        assert end(scene, Ending(succeeded=True)) is JobState.SUCCEEDED

    def test_a_lost_worker_meanwhile_is_a_pause_and_spends_nothing(self, scene: Scene) -> None:
        scene.run()
        pause(scene)
        assert end(scene, Ending(succeeded=False, cause=Cause.WORKER_LOST)) is JobState.PAUSED
        assert scene.job().losses == 0

    def test_repeating_is_harmless_and_journals_once(self, scene: Scene) -> None:
        scene.run()
        pause(scene)
        assert not pause(scene).done
        assert notices(scene) == ["stop_requested"]
        end(scene, Ending(succeeded=False))
        assert pause(scene).done

    def test_a_cancel_is_stronger_and_keeps_the_upper_hand(self, scene: Scene) -> None:
        scene.run()
        pause(scene)
        cancel(scene)
        with pytest.raises(StateConflict, match="being cancelled") as refused:
            pause(scene)
        assert refused.value.legal == ["cancel", "clone"]
        assert end(scene, Ending(succeeded=False)) is JobState.CANCELLED

    def test_another_project_s_job_does_not_exist(self, scene: Scene) -> None:
        with scene.database.write() as session:
            other = add_project(session, "other").id
        with pytest.raises(NotFound):
            pause(scene, other)
        with pytest.raises(NotFound):
            resume(scene, other)


class TestResume:
    def test_a_paused_job_is_queued_at_its_old_place(self, scene: Scene) -> None:
        before = scene.job().queued_at
        scene.clock.advance(60)
        pause(scene)
        scene.clock.advance(60)
        outcome = resume(scene)
        assert (outcome.done, outcome.job.state, outcome.job.queued_at) == (False, "queued", before)
        with scene.database.write() as session:
            session.get_one(Worker, scene.worker_id).heartbeat_at = scene.clock.now()
        assert [placed.attempt for placed in scene.place()] == [1]

    def test_what_is_not_paused_goes_on_as_it_was(self, scene: Scene) -> None:
        assert resume(scene).done
        scene.run()
        assert resume(scene).done
        assert scene.state() is JobState.RUNNING

    def test_a_pause_that_was_not_carried_out_is_taken_back(self, scene: Scene) -> None:
        scene.run()
        pause(scene)
        outcome = resume(scene)
        assert (outcome.done, outcome.job.state, outcome.job.stop_requested) == (False, "running", None)
        assert notices(scene) == ["stop_requested", "stop_withdrawn"]
        # Its trainer may have been told already: then it leaves, with its checkpoint, and is placed again.
        assert end(scene, Ending(succeeded=False)) is JobState.QUEUED
        assert (scene.job().failures, scene.job().losses) == (0, 0)

    def test_a_cancel_is_not_taken_back(self, scene: Scene) -> None:
        scene.run()
        cancel(scene)
        with pytest.raises(StateConflict, match="being cancelled"):
            resume(scene)


class TestLegal:
    """Every state against every request: what LEGAL says is what happens."""

    REQUESTS = {"cancel": request_cancel, "pause": request_pause, "resume": request_resume}  # noqa: RUF012 - a table
    # Asking for what the job is already, or does already, is answered and changes nothing.
    HARMLESS = (
        ("pause", JobState.PAUSED),
        ("cancel", JobState.CANCELLED),
        ("resume", JobState.QUEUED),
        ("resume", JobState.STARTING),
        ("resume", JobState.RUNNING),
    )

    @pytest.mark.parametrize("state", list(JobState))
    @pytest.mark.parametrize("asked", list(REQUESTS))
    def test_it_is_carried_out_or_refused_with_the_list(
        self, database: Database, clock: FakeClock, state: JobState, asked: str
    ) -> None:
        scene = make_scene(database, clock, state=state.value)
        ask = self.REQUESTS[asked]
        with database.write() as session:
            if asked in LEGAL[state] or (asked, state) in self.HARMLESS:
                outcome = ask(session, scene.project_id, scene.job_id, clock.now())
                assert (asked, state) not in self.HARMLESS or outcome.job.state == state.value
            else:
                with pytest.raises(StateConflict) as refused:
                    ask(session, scene.project_id, scene.job_id, clock.now())
                assert (refused.value.state, refused.value.legal) == (state, list(LEGAL[state]))

    def test_every_state_is_in_the_table_and_a_final_one_allows_no_stop(self) -> None:
        assert set(LEGAL) == set(JobState)
        for state in FINAL:
            assert not set(LEGAL[state]) & self.REQUESTS.keys()
