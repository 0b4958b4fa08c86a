"""A job is deleted with all that it has, and only when nobody needs it any more."""

import logging
from typing import Any

import pytest
from sqlalchemy import func, select, text

from app.artifacts.models import Artifact
from app.checkpoints.models import Checkpoint
from app.db import Base
from app.errors import NotFound
from app.ids import new_id
from app.jobs.models import Attempt, JobHead, JournalRow
from app.jobs.states import JobState
from app.jobs.stops import StateConflict
from app.retention.deletion import JobNeeded, delete_job, delete_rows, remove_files
from app.storage import LocalStorage
from tests.retention.history import History

HISTORY: tuple[type[Base], ...] = (JobHead, JournalRow, Attempt, Artifact, Checkpoint)
OPEN = [JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.PAUSED]


def delete(history: History, job_id: str) -> None:
    delete_job(history.database, history.storage, history.project_id, job_id)


def rows_of(history: History, job_id: str) -> dict[str, int]:
    with history.database.read() as session:
        return {
            table.__tablename__: session.scalar(
                select(func.count()).select_from(table).where(table.__table__.c.job_id == job_id)
            )
            or 0
            for table in HISTORY
        }


class TestDeleteJob:
    def test_rows_and_files_go_and_those_of_others_stay(self, history: History) -> None:
        gone, stays = history.job(), history.job()
        assert all(rows_of(history, gone).values())
        delete(history, gone)
        assert history.jobs() == {stays}
        assert not any(rows_of(history, gone).values())
        assert all(rows_of(history, stays).values())
        assert history.storage.list() == [
            f"artifacts/{stays}/1/model.safetensors",
            f"checkpoints/{stays}/1/10/weights.safetensors",
        ]

    def test_files_without_a_row_go_too(self, history: History) -> None:
        job = history.job()
        history.put(f"checkpoints/{job}/1/20/weights.safetensors")
        history.put(f"exports/{job}/{new_id('tsk')}/1/model.onnx")
        delete(history, job)
        assert history.storage.list() == []

    @pytest.mark.parametrize("state", OPEN)
    def test_one_that_is_not_over_stays(self, history: History, state: JobState) -> None:
        job = history.job(state=state, finished_at=None)
        with pytest.raises(StateConflict) as refused:
            delete(history, job)
        assert (refused.value.state, job in history.jobs()) == (state, True)
        assert len(history.storage.list()) == 2

    def test_what_another_project_has_does_not_exist(self, history: History) -> None:
        job = history.job()
        with pytest.raises(NotFound):
            delete_job(history.database, history.storage, new_id("prj"), job)
        assert history.jobs() == {job}

    def test_twice_is_not_found(self, history: History) -> None:
        job = history.job()
        delete(history, job)
        with pytest.raises(NotFound):
            delete(history, job)

    def test_a_storage_that_fails_keeps_files_but_no_rows(
        self, history: History, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fails(_self: Any, _key: str) -> None:
            raise OSError(5, "Input/output error")

        job = history.job()
        monkeypatch.setattr(LocalStorage, "delete", fails)
        with caplog.at_level(logging.WARNING):
            delete(history, job)
        assert history.jobs() == set()
        assert job in caplog.text

    def test_a_long_history_may_take_its_time(self, history: History) -> None:
        job = history.job()
        with history.database.write() as session:
            delete_rows(session, job)
            if not history.database.is_sqlite:
                assert session.execute(text("SHOW statement_timeout")).scalar_one() == "0"
        assert history.jobs() == set()


class TestNeeded:
    def test_the_source_of_a_waiting_retry_stays_until_that_is_over(self, history: History) -> None:
        source = history.job(state=JobState.FAILED)
        line: dict[str, Any] = {"parent_job_id": source, "parent_how": "retry", "parent_step": 10}
        retry = history.job(state=JobState.QUEUED, finished_at=None, steps=(), **line)
        with pytest.raises(JobNeeded) as refused:
            delete(history, source)
        assert refused.value.jobs == [retry]
        assert retry in str(refused.value)

    def test_the_whole_line_of_retries_counts(self, history: History) -> None:
        first = history.job(state=JobState.FAILED)
        line: dict[str, Any] = {"parent_how": "retry", "parent_step": 10, "steps": ()}
        second = history.job(state=JobState.CANCELLED, parent_job_id=first, **line)
        third = history.job(state=JobState.RUNNING, finished_at=None, parent_job_id=second, **line)
        with pytest.raises(JobNeeded) as refused:
            delete(history, first)
        assert refused.value.jobs == [third]

    def test_a_retry_from_the_start_and_a_clone_need_nothing(self, history: History) -> None:
        source = history.job(state=JobState.FAILED)
        for how in ("retry", "clone"):
            history.job(state=JobState.QUEUED, finished_at=None, parent_job_id=source, parent_how=how)
        delete(history, source)
        assert source not in history.jobs()

    def test_the_weights_that_a_waiting_job_starts_from_stay(self, history: History) -> None:
        source, other = history.job(), history.job()
        spec = {"initialize_from": {"job": source, "checkpoint": "best"}}
        waiting = history.job(state=JobState.QUEUED, finished_at=None, effective_spec=spec)
        with pytest.raises(JobNeeded) as refused:
            delete(history, source)
        assert refused.value.jobs == [waiting]
        delete(history, other)

    def test_an_id_that_only_stands_in_a_spec_holds_nothing(self, history: History) -> None:
        source = history.job()
        for spec in ({"script": {"command": ["python", "report.py", source]}}, {"tags": {"from": source}}):
            history.job(state=JobState.QUEUED, finished_at=None, effective_spec=spec)
        delete(history, source)
        assert source not in history.jobs()

    def test_a_job_that_is_over_needs_nothing(self, history: History) -> None:
        source = history.job()
        history.job(effective_spec={"initialize_from": {"job": source, "checkpoint": "best"}})
        delete(history, source)
        assert source not in history.jobs()


class TestRemoveFiles:
    def test_it_says_how_many_and_can_be_repeated(self, history: History) -> None:
        job = history.job(steps=(10, 20))
        assert remove_files(history.storage, job) == 3
        assert remove_files(history.storage, job) == 0
