"""What the end of an attempt makes of its job; the budgets are the design's table of causes."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from app.db import Database
from app.errors import Cause
from app.fleet.models import Lease, Worker
from app.jobs import journal
from app.jobs.causes import CAUSES, Budget
from app.jobs.endings import Ending, IllegalEndError, end_attempt, judge
from app.jobs.models import Attempt, Job
from app.jobs.states import JobState, StopRequest
from tests.fakes import FakeClock
from tests.jobs.placing import Scene, make_scene

# Source: the table of causes in the design; environment_failed is decided in docs/decisions/0033.
FAILURES = {
    "invalid_data", "user_code", "environment_failed", "diverged", "timed_out", "incomplete", "artifact_unreadable",
    "shared_memory", "device_out_of_memory", "host_out_of_memory", "trainer_killed", "idle",
}  # fmt: skip
LOSSES = {"worker_lost", "device_unavailable", "device_fault"}
FREE = {"not_claimed", "drained", "preempted"}


def job_with(**values: object) -> Job:
    columns: dict[str, object] = {"state": "running", "failures": 0, "losses": 0, "retry_failures": 0}
    return Job(**{**columns, "retry_losses": 3, "stop_requested": None, **values})


class TestCauses:
    def test_the_budgets_are_the_design_s(self) -> None:
        by_budget = {budget: {c.value for c in CAUSES if CAUSES[c].budget is budget} for budget in Budget}
        assert by_budget == {Budget.FAILURES: FAILURES, Budget.LOSSES: LOSSES, Budget.NONE: FREE}

    def test_every_cause_has_a_sentence(self) -> None:
        assert set(CAUSES) == set(Cause)
        assert all(facts.sentence.endswith(".") for facts in CAUSES.values())


class TestPage:
    def test_the_page_of_errors_lists_every_cause_with_its_budget_and_sentence(self) -> None:
        text = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
        rows = set(re.findall(r"^\| `(\w+)` \| (`retry\.\w+`|none) \| ([^|]+) \| [^|]+ \|$", text, re.MULTILINE))
        names = {Budget.FAILURES: "`retry.failures`", Budget.LOSSES: "`retry.losses`", Budget.NONE: "none"}
        assert rows == {(cause.value, names[facts.budget], facts.sentence) for cause, facts in CAUSES.items()}


class TestJudge:
    @pytest.mark.parametrize("cause", sorted(FAILURES - {"timed_out"}))
    def test_a_failure_is_final_without_a_budget_and_a_retry_with_one(self, cause: str) -> None:
        ending = Ending(succeeded=False, cause=Cause(cause))
        assert judge(job_with(), ending).state is JobState.FAILED
        verdict = judge(job_with(retry_failures=1), ending)
        assert (verdict.state, verdict.failures, verdict.losses) == (JobState.QUEUED, 1, 0)

    def test_out_of_time_is_final_whatever_the_budget_since_another_try_would_have_none_left(self) -> None:
        verdict = judge(job_with(retry_failures=5), Ending(succeeded=False, cause=Cause.TIMED_OUT))
        assert (verdict.state, verdict.cause, verdict.failures) == (JobState.FAILED, Cause.TIMED_OUT, 1)

    @pytest.mark.parametrize("cause", sorted(LOSSES))
    def test_a_loss_spends_the_other_budget(self, cause: str) -> None:
        ending = Ending(succeeded=False, cause=Cause(cause))
        spent = [judge(job_with(losses=n), ending).state.value for n in range(4)]
        assert spent == ["queued", "queued", "queued", "failed"]

    @pytest.mark.parametrize("cause", sorted(FREE))
    def test_what_the_job_is_not_to_blame_for_costs_nothing(self, cause: str) -> None:
        verdict = judge(job_with(retry_losses=0), Ending(succeeded=False, cause=Cause(cause)))
        assert (verdict.state, verdict.failures, verdict.losses) == (JobState.QUEUED, 0, 0)

    @pytest.mark.parametrize("succeeded", [True, False])
    def test_an_accepted_cancel_always_ends_cancelled(self, *, succeeded: bool) -> None:
        job = job_with(stop_requested=StopRequest.CANCEL.value)
        assert judge(job, Ending(succeeded=succeeded, cause=Cause.USER_CODE)).state is JobState.CANCELLED

    def test_a_pause_keeps_a_success_and_covers_everything_else(self) -> None:
        job = job_with(stop_requested=StopRequest.PAUSE.value)
        assert judge(job, Ending(succeeded=True)).state is JobState.SUCCEEDED
        assert judge(job, Ending(succeeded=False, cause=Cause.WORKER_LOST)).state is JobState.PAUSED

    def test_a_pause_covers_a_timeout_too(self) -> None:
        job = job_with(stop_requested=StopRequest.PAUSE.value)
        assert judge(job, Ending(succeeded=False, cause=Cause.TIMED_OUT)).state is JobState.PAUSED

    def test_who_left_for_a_request_that_was_taken_back_is_tried_again_and_blamed_for_nothing(self) -> None:
        verdict = judge(job_with(), Ending(succeeded=False, cause=None))
        assert (verdict.state, verdict.cause, verdict.failures, verdict.losses) == (JobState.QUEUED, None, 0, 0)

    def test_tries_of_one_budget_wait_longer_and_longer(self) -> None:
        ending = Ending(succeeded=False, cause=Cause.USER_CODE)
        waits = [judge(job_with(failures=n, retry_failures=20), ending).wait_s for n in range(8)]
        assert waits == [0.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0]


class TestEndAttempt:
    @pytest.fixture
    def scene(self, database: Database, clock: FakeClock) -> Scene:
        scene = make_scene(database, clock)
        scene.run()
        clock.advance(12.5)
        return scene

    def end(self, scene: Scene, ending: Ending, attempt: int = 1) -> JobState | None:
        with scene.database.write() as session:
            return end_attempt(session, scene.job_id, attempt, ending, scene.clock.now())

    def test_success_closes_everything(self, scene: Scene) -> None:
        ending = Ending(succeeded=True, exit_code=0, max_rss_bytes=1000, final_metrics={"test_loss": 0.25})
        assert self.end(scene, ending) is JobState.SUCCEEDED
        job = scene.job()
        assert (job.state, job.cause, job.run_s) == ("succeeded", None, 12.5)
        assert job.last_metrics == {"test_loss": 0.25}
        with scene.database.read() as session:
            attempt = session.get_one(Attempt, (scene.job_id, 1))
            assert session.query(Lease).count() == 0
            assert journal.head(session, scene.job_id)[1] is True
        assert (attempt.exit_code, attempt.max_rss_bytes, attempt.cause) == (0, 1000, None)

    def test_a_final_failure_says_why_in_a_sentence(self, scene: Scene) -> None:
        ending = Ending(succeeded=False, cause=Cause.TRAINER_KILLED, detail="It got signal 9.", signal=9)
        assert self.end(scene, ending) is JobState.FAILED
        job = scene.job()
        assert job.cause == "trainer_killed"
        assert job.cause_detail == "The training process was killed from outside. It got signal 9."
        with scene.database.read() as session:
            last = journal.read(session, scene.job_id, after=0)[-1]
        assert '"signal":9' in last.text

    def test_a_lost_worker_puts_the_job_back_in_its_old_place(self, scene: Scene) -> None:
        before = scene.job().queued_at
        assert self.end(scene, Ending(succeeded=False, cause=Cause.WORKER_LOST)) is JobState.QUEUED
        job = scene.job()
        assert (job.losses, job.queued_at, job.cause, job.not_before) == (1, before, None, None)
        assert [placed.attempt for placed in scene.place()] == [2]

    def test_run_time_adds_up_over_attempts(self, scene: Scene) -> None:
        self.end(scene, Ending(succeeded=False, cause=Cause.WORKER_LOST))
        scene.place()
        scene.claim(attempt=2)
        scene.start(attempt=2)
        scene.clock.advance(7.5)
        self.end(scene, Ending(succeeded=True), attempt=2)
        assert scene.job().run_s == 20.0

    def test_a_second_try_waits_before_it_starts(self, scene: Scene) -> None:
        self.end(scene, Ending(succeeded=False, cause=Cause.WORKER_LOST))
        scene.place()
        scene.claim(attempt=2)
        self.end(scene, Ending(succeeded=False, cause=Cause.WORKER_LOST), attempt=2)
        assert scene.job().not_before == scene.clock.now() + timedelta(seconds=2)
        assert scene.place() == []
        scene.clock.advance(2)
        assert [placed.attempt for placed in scene.place()] == [3]

    def test_a_stale_end_changes_nothing(self, scene: Scene) -> None:
        self.end(scene, Ending(succeeded=False, cause=Cause.WORKER_LOST))
        scene.place()
        assert self.end(scene, Ending(succeeded=True), attempt=1) is None
        assert scene.state() is JobState.STARTING
        with scene.database.read() as session:
            assert session.query(Lease).count() == 1, "the new attempt keeps its device"

    def test_a_clock_that_was_set_back_gives_no_time_back(self, scene: Scene) -> None:
        scene.clock.advance(-3600)
        self.end(scene, Ending(succeeded=False, cause=Cause.WORKER_LOST))
        assert scene.job().run_s == 0.0

    def test_an_end_that_the_states_do_not_allow_is_not_half_written(self, scene: Scene) -> None:
        # From `starting` the design's table has no way to `succeeded`; half of this left a job that nothing could end.
        self.end(scene, Ending(succeeded=False, cause=Cause.WORKER_LOST))
        scene.place()
        with pytest.raises(IllegalEndError, match="cannot make it succeeded"):
            self.end(scene, Ending(succeeded=True), attempt=2)
        assert scene.state() is JobState.STARTING
        with scene.database.read() as session:
            assert session.get_one(Attempt, (scene.job_id, 2)).ended_at is None
            assert session.query(Lease).count() == 1

    def test_what_nobody_takes_leaves_its_devices_to_others_for_a_while(self, scene: Scene) -> None:
        self.end(scene, Ending(succeeded=False, cause=Cause.DRAINED))
        waits: list[float] = []
        for attempt in range(2, 8):
            scene.clock.advance(waits[-1] if waits else 0)
            with scene.database.write() as session:
                session.get_one(Worker, scene.worker_id).heartbeat_at = scene.clock.now()
            assert [placed.attempt for placed in scene.place()] == [attempt]
            self.end(scene, Ending(succeeded=False, cause=Cause.NOT_CLAIMED), attempt)
            later = scene.job().not_before
            waits.append(0.0 if later is None else max(0.0, (later - scene.clock.now()).total_seconds()))
        assert waits == [0.0, 0.0, 0.0, 2.0, 4.0, 8.0]
        assert (scene.job().failures, scene.job().losses) == (0, 0)

    def test_the_end_happens_once(self, scene: Scene) -> None:
        assert self.end(scene, Ending(succeeded=True)) is JobState.SUCCEEDED
        assert self.end(scene, Ending(succeeded=False, cause=Cause.USER_CODE)) is None
        assert scene.state() is JobState.SUCCEEDED
