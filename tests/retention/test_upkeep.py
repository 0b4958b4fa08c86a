"""What was kept long enough goes, and nothing else; without settings everything stays."""

from typing import Any

from sqlalchemy import select

from app.checkpoints.models import Checkpoint
from app.ids import new_id
from app.jobs.states import JobState
from app.retention.upkeep import Kept, Retention, Swept
from tests.retention.history import History


def sweep(history: History, *, dry_run: bool = False, orphans: bool = True, **days: float) -> Swept:
    retention = Retention(history.database, history.storage, Kept(**days))
    return retention.sweep(dry_run=dry_run, orphans=orphans)


def steps(history: History, job_id: str) -> list[int]:
    with history.database.read() as session:
        return list(session.scalars(select(Checkpoint.step).where(Checkpoint.job_id == job_id)))


class TestJobs:
    def test_without_a_setting_all_are_kept(self, history: History) -> None:
        job = history.job(ended_days_ago=4000)
        assert not sweep(history)
        assert history.jobs() == {job}

    def test_those_go_that_ended_longer_ago(self, history: History) -> None:
        old, fresh = history.job(ended_days_ago=30.1), history.job(ended_days_ago=29.9)
        assert sweep(history, jobs_days=30).jobs == [old]
        assert history.jobs() == {fresh}
        assert all(fresh in key for key in history.storage.list())
        assert not sweep(history, jobs_days=30)

    def test_one_that_waits_since_then_stays(self, history: History) -> None:
        job = history.job(ended_days_ago=90, state=JobState.PAUSED, finished_at=None)
        assert not sweep(history, jobs_days=30)
        assert history.jobs() == {job}

    def test_one_that_a_waiting_job_needs_stays(self, history: History) -> None:
        line: dict[str, Any] = {"parent_how": "retry", "parent_step": 10, "steps": ()}
        source = history.job(ended_days_ago=90, state=JobState.FAILED)
        history.job(state=JobState.QUEUED, finished_at=None, parent_job_id=source, **line)
        assert not sweep(history, jobs_days=30, checkpoints_days=30)
        assert steps(history, source) == [10]

    def test_more_than_one_page_of_them(self, history: History, monkeypatch: Any) -> None:
        monkeypatch.setattr("app.retention.upkeep._AT_ONCE", 2)
        made = [history.job(ended_days_ago=days, steps=()) for days in (95, 94, 93, 92, 91)]
        assert sweep(history, jobs_days=90).jobs == sorted(made)
        assert history.jobs() == set()


class TestCheckpoints:
    def test_they_go_and_the_model_stays(self, history: History) -> None:
        old, fresh = history.job(ended_days_ago=8, steps=(10, 20)), history.job(ended_days_ago=6)
        assert sweep(history, checkpoints_days=7).checkpoints == [(old, 10), (old, 20)]
        assert (steps(history, old), steps(history, fresh)) == ([], [10])
        assert [key for key in history.storage.list() if old in key] == [f"artifacts/{old}/1/model.safetensors"]

    def test_those_of_a_job_that_goes_are_not_told_apart(self, history: History) -> None:
        old = history.job(ended_days_ago=90)
        swept = sweep(history, jobs_days=30, checkpoints_days=7)
        assert (swept.jobs, swept.checkpoints) == ([old], [])


class TestDryRun:
    def test_it_tells_the_same_and_changes_nothing(self, history: History) -> None:
        history.job(ended_days_ago=90)
        history.job(ended_days_ago=8)
        history.put(f"artifacts/{new_id('job')}/1/x")
        before = (history.jobs(), history.storage.list())
        told = sweep(history, dry_run=True, jobs_days=30, checkpoints_days=7)
        assert (history.jobs(), history.storage.list()) == before
        assert (len(told.jobs), len(told.checkpoints), len(told.files)) == (1, 1, 1)
        assert sweep(history, jobs_days=30, checkpoints_days=7) == told


class TestOrphans:
    def test_they_are_deleted(self, history: History) -> None:
        left = history.put(f"artifacts/{new_id('job')}/1/x")
        assert sweep(history).files == [left]
        assert history.storage.list() == []

    def test_the_storage_is_not_listed_unless_asked(self, history: History) -> None:
        history.put(f"artifacts/{new_id('job')}/1/x")
        assert not sweep(history, orphans=False)
        assert len(history.storage.list()) == 1
