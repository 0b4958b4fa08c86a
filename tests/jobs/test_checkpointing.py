"""Recording a checkpoint: fenced, journaled once, and what it makes of the next claim."""

from collections.abc import Mapping

import orjson
import pytest

from app.checkpoints.repository import CheckpointFacts, newest
from app.db import Database
from app.errors import Cause
from app.jobs import journal
from app.jobs.attempts import record
from app.jobs.checkpointing import record_checkpoint
from app.jobs.claims import Claim, claim
from app.jobs.endings import Ending, end_attempt
from app.jobs.journal import Entry
from app.jobs.lineage import left_by, to_go_on_from
from app.jobs.metrics import series
from app.jobs.models import Attempt, Job
from app.jobs.resumption import resumption_at, snapshots, without_journal
from app.jobs.states import JobState
from app.jobs.stops import request_cancel
from tests.checkpoints.facts import facts
from tests.fakes import FakeClock
from tests.jobs.placing import PROCESS, TIMES, Scene, make_scene


@pytest.fixture
def scene(database: Database, clock: FakeClock) -> Scene:
    scene = make_scene(database, clock)
    scene.run()
    return scene


def keep(scene: Scene, checkpoint: CheckpointFacts) -> list[str] | None:
    with scene.database.write() as session:
        return record_checkpoint(session, checkpoint, scene.clock.now(), keep_periodic=False)


def end(scene: Scene, cause: Cause | None, attempt: int = 1) -> None:
    with scene.database.write() as session:
        end_attempt(session, scene.job_id, attempt, Ending(succeeded=False, cause=cause), scene.clock.now())


def entries(scene: Scene, kind: journal.Kind) -> list[dict[str, object]]:
    with scene.database.read() as session:
        return [orjson.loads(event.text) for event in journal.read(session, scene.job_id, 0, kind=kind)]


def steps(scene: Scene) -> list[int]:
    with scene.database.read() as session:
        return [row.step for row in newest(session, scene.job_id)]


def take(scene: Scene, attempt: int, job_id: str | None = None) -> Claim:
    with scene.database.write() as session:
        now = scene.clock.now()
        taken = claim(session, scene.worker_id, "instance-1", job_id or scene.job_id, attempt, now, TIMES.lease_s)
    assert taken is not None
    return taken


class TestRecord:
    def test_it_is_a_row_and_a_journal_entry(self, scene: Scene) -> None:
        assert keep(scene, facts(scene.job_id, 10, best=True, metrics={"val_loss": "NaN"})) == []
        assert steps(scene) == [10]
        (entry,) = entries(scene, "checkpoint")
        assert entry == {
            "step": 10,
            "epoch": 1,
            "reason": "periodic",
            "best": True,
            "metrics": {"val_loss": "NaN"},
            "size_bytes": 110,
        }

    def test_the_repeat_of_a_lost_answer_is_journaled_once(self, scene: Scene) -> None:
        for _ in range(3):
            assert keep(scene, facts(scene.job_id, 10)) == []
        assert len(entries(scene, "checkpoint")) == 1

    def test_what_is_replaced_or_not_needed_is_to_be_deleted(self, scene: Scene) -> None:
        for step in (10, 20):
            keep(scene, facts(scene.job_id, step))
        unnamed = keep(scene, facts(scene.job_id, 30))
        assert unnamed == facts(scene.job_id, 10).keys

    @pytest.mark.parametrize("cause", [Cause.WORKER_LOST, Cause.USER_CODE, None])
    def test_an_attempt_that_is_over_writes_nothing(self, scene: Scene, cause: Cause | None) -> None:
        end(scene, cause)
        before = entries(scene, "state")
        assert keep(scene, facts(scene.job_id, 10)) is None
        assert (steps(scene), entries(scene, "checkpoint")) == ([], [])
        assert entries(scene, "state") == before

    def test_nor_does_one_that_was_replaced(self, scene: Scene) -> None:
        end(scene, Cause.WORKER_LOST)
        scene.place()
        scene.claim(attempt=2)
        assert keep(scene, facts(scene.job_id, 10, attempt=1)) is None
        assert keep(scene, facts(scene.job_id, 20, attempt=2)) == []
        assert steps(scene) == [20]

    def test_nor_into_a_job_that_is_not_there(self, scene: Scene) -> None:
        assert keep(scene, facts("job_gone", 10)) is None

    def test_a_job_that_is_being_cancelled_still_keeps_it(self, scene: Scene) -> None:
        with scene.database.write() as session:
            request_cancel(session, scene.project_id, scene.job_id, scene.clock.now())
        keep(scene, facts(scene.job_id, 10))
        end(scene, None)
        assert (scene.state(), steps(scene)) == (JobState.CANCELLED, [10])


class TestClaim:
    def test_a_first_attempt_has_nothing_to_go_on_from(self, database: Database, clock: FakeClock) -> None:
        scene = make_scene(database, clock)
        scene.place()
        assert take(scene, 1).resume == ()

    def test_a_later_one_has_the_newest_and_those_before_it(self, scene: Scene) -> None:
        keep(scene, facts(scene.job_id, 10))
        keep(scene, facts(scene.job_id, 20))
        end(scene, Cause.WORKER_LOST)
        scene.place()
        assert [found.step for found in take(scene, 2).resume] == [20, 10]

    def test_a_retry_goes_on_from_what_its_parent_left_until_it_has_its_own(self, scene: Scene) -> None:
        for step in (10, 20, 30):
            with scene.database.write() as session:
                record_checkpoint(session, facts(scene.job_id, step), scene.clock.now(), keep_periodic=True)
        end(scene, Cause.USER_CODE)
        child = scene.add_job(parent_job_id=scene.job_id, parent_how="retry", parent_step=20)
        scene.place()
        assert [(found.job_id, found.step) for found in take(scene, 1, child).resume] == [
            (scene.job_id, 20),
            (scene.job_id, 10),
        ]
        with scene.database.write() as session:
            record_checkpoint(session, facts(child, 25), scene.clock.now(), keep_periodic=False)
            end_attempt(session, child, 1, Ending(succeeded=False, cause=Cause.WORKER_LOST), scene.clock.now())
        scene.place()
        assert [found.step for found in take(scene, 2, child).resume] == [25, 20, 10]

    def test_a_retry_of_a_retry_that_left_none_goes_on_from_what_that_one_had(self, scene: Scene) -> None:
        for step in (10, 20, 30):
            with scene.database.write() as session:
                record_checkpoint(session, facts(scene.job_id, step), scene.clock.now(), keep_periodic=True)
        end(scene, Cause.USER_CODE)
        second = scene.add_job(parent_job_id=scene.job_id, parent_how="retry", parent_step=20, state="failed")
        with scene.database.read() as session:
            left = left_by(session, second, "last")
            assert left is not None
            assert (left.job_id, left.step, left_by(session, second, "best")) == (scene.job_id, 20, None)
        third = scene.add_job(parent_job_id=second, parent_how="retry", parent_step=left.step)
        scene.place()
        assert [found.step for found in take(scene, 1, third).resume] == [20, 10], "30 was of no use to the second"

    def test_the_best_of_the_line_counts_only_up_to_where_it_went_on(self, scene: Scene) -> None:
        for step in (10, 30):
            with scene.database.write() as session:
                best = facts(scene.job_id, step, best=True)
                record_checkpoint(session, best, scene.clock.now(), keep_periodic=True)
        end(scene, Cause.USER_CODE)
        early, late = (
            scene.add_job(parent_job_id=scene.job_id, parent_how="retry", parent_step=step) for step in (20, 30)
        )
        with scene.database.read() as session:
            assert left_by(session, early, "best") is None
            found = left_by(session, late, "best")
        assert found is not None
        assert found.step == 30

    def test_a_line_that_leads_to_itself_has_an_end(self, scene: Scene) -> None:
        with scene.database.write() as session:
            job = session.get_one(Job, scene.job_id)
            job.parent_job_id, job.parent_step = scene.job_id, 10
        with scene.database.read() as session:
            assert to_go_on_from(session, scene.job_id) == []
            assert left_by(session, scene.job_id, "last") is None

    def test_a_clone_starts_from_the_beginning(self, scene: Scene) -> None:
        keep(scene, facts(scene.job_id, 10))
        end(scene, Cause.USER_CODE)
        child = scene.add_job(parent_job_id=scene.job_id, parent_how="clone", parent_step=None)
        scene.place()
        assert take(scene, 1, child).resume == ()


class TestResumption:
    def report(self, scene: Scene, attempt: int, values: Mapping[int, float]) -> None:
        points = {"val_loss": {"step": list(values), "epoch": list(values), "value": list(values.values())}}
        last = {"val_loss": list(values.values())[-1]}
        progress = {"epoch": max(values), "epochs": 9, "step": max(values), "steps": 90, "fraction": max(values) / 90}
        with scene.database.write() as session:
            entry = Entry("metric", {"points": points})
            assert record(session, scene.job_id, attempt, [entry], progress, last, scene.clock.now())

    def start(self, scene: Scene, checkpoint: CheckpointFacts) -> Job:
        """Start attempt 2 from the checkpoint, as a worker does."""
        end(scene, Cause.WORKER_LOST)
        scene.place()
        assert take(scene, 2).resume[0] == checkpoint
        with scene.database.read() as session:
            resumed = resumption_at(session, checkpoint)
        assert scene.start(attempt=2, resumed=resumed)
        return scene.job()

    def test_the_job_shows_what_it_was_at_that_step(self, scene: Scene) -> None:
        self.report(scene, 1, {10: 0.5, 20: 0.4, 30: 0.1, 40: 0.2})
        checkpoint = facts(scene.job_id, 20, epoch=2)
        keep(scene, checkpoint)
        job = self.start(scene, checkpoint)
        assert (job.last_metrics, job.best_metrics) == ({"val_loss": 0.4}, {"val_loss": 0.4})
        assert job.progress is not None
        assert (job.progress["step"], job.progress["epoch"], job.progress["steps"]) == (20, 2, 90)
        assert job.progress["fraction"] == pytest.approx(20 / 90)
        with scene.database.read() as session:
            assert session.get_one(Attempt, (scene.job_id, 2)).resumed_from_step == 20
        assert entries(scene, "state")[-1]["resumed_from_step"] == 20

    def test_series_hide_what_lay_beyond_it(self, scene: Scene) -> None:
        self.report(scene, 1, {10: 0.5, 20: 0.4, 30: 0.1})
        checkpoint = facts(scene.job_id, 20)
        keep(scene, checkpoint)
        self.start(scene, checkpoint)
        self.report(scene, 2, {30: 0.3, 40: 0.2})
        with scene.database.read() as session:
            found = series(session, scene.job_id, None, 100)["val_loss"]
        assert (found.step, found.value) == ([10, 20, 30, 40], [0.5, 0.4, 0.3, 0.2])
        assert found.attempt == [1, 1, 2, 2]

    def test_the_best_is_the_best_up_to_there(self, scene: Scene) -> None:
        self.report(scene, 1, {10: 0.2, 20: 0.4, 30: 0.1})
        with scene.database.read() as session:
            found = resumption_at(session, facts(scene.job_id, 25))
        assert (found.last_metrics, found.best_metrics) == ({"val_loss": 0.4}, {"val_loss": 0.2})

    def test_without_a_report_the_checkpoint_s_own_values_are_shown(self, scene: Scene) -> None:
        checkpoint = facts(scene.job_id, 9, metrics={"loss": 0.25})
        with scene.database.read() as session:
            found = resumption_at(session, checkpoint)
        assert (found.step, found.progress, found.last_metrics, found.best_metrics) == (9, None, {"loss": 0.25}, None)
        assert without_journal(checkpoint) == found

    def test_values_that_are_no_numbers_are_never_the_best(self, scene: Scene) -> None:
        with scene.database.write() as session:
            points = {"loss": {"step": [1, 2], "epoch": [1, 2], "value": [0.5, "NaN"]}}
            record(session, scene.job_id, 1, [Entry("metric", {"points": points})], None, None, scene.clock.now())
        with scene.database.read() as session:
            latest, best = snapshots(series(session, scene.job_id, None, 100), 2)
        assert (latest, best) == ({"loss": "NaN"}, {"loss": 0.5})

    def test_an_attempt_that_starts_anew_says_no_step(self, scene: Scene) -> None:
        assert "resumed_from_step" not in entries(scene, "state")[-1]
        assert scene.start(attempt=1) is False, "it runs already"
        assert PROCESS.pid == 4242
