"""Files that no row names are found; whatever may still be on its way to a row is not."""

from datetime import timedelta

import pytest
from sqlalchemy import delete

from app.accounts.models import Project
from app.ids import new_id
from app.jobs.models import Job
from app.jobs.states import JobState
from app.predictions.models import ModelTask
from app.predictions.states import TaskState
from app.retention.orphans import UPLOADING, find_orphans
from app.storage.keys import bundle_key
from tests.fakes import START
from tests.retention.history import History
from tests.rows import add_bundle, add_dataset, add_project


def found(history: History) -> list[str]:
    return find_orphans(history.database, history.storage, START)


def id_made(prefix: str, ago: timedelta) -> str:
    return new_id(prefix, unix_ms=round((START - ago).timestamp() * 1000))


class TestJobs:
    def test_what_rows_name_is_none(self, history: History) -> None:
        history.job(steps=(10, 20))
        assert found(history) == []

    def test_an_attempt_that_was_killed_between_file_and_row_left_one(self, history: History) -> None:
        job = history.job()
        left = [
            history.put(f"artifacts/{job}/1/report.png"),
            history.put(f"checkpoints/{job}/1/30/weights.safetensors"),
        ]
        assert found(history) == left

    def test_a_second_checkpoint_of_one_step_is_told_from_the_first(self, history: History) -> None:
        job = history.job(steps=(10,))
        assert found(history) == []
        left = history.put(f"checkpoints/{job}/1/10.1/weights.safetensors")
        assert found(history) == [left]

    @pytest.mark.parametrize("state", [JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.PAUSED])
    def test_a_job_that_is_not_over_may_be_writing(self, history: History, state: JobState) -> None:
        job = history.job(state=state, finished_at=None)
        history.put(f"checkpoints/{job}/1/30/weights.safetensors")
        assert found(history) == []

    def test_all_files_of_a_deleted_job_are(self, history: History) -> None:
        gone = new_id("job")
        left = [history.put(f"{kind}/{gone}/1/x") for kind in ("artifacts", "checkpoints")]
        assert found(history) == left


class TestExports:
    def test_those_of_a_task_that_runs_are_left_alone_until_it_is_over(self, history: History) -> None:
        job, task = history.job(), new_id("tsk")
        key = history.put(f"exports/{job}/{task}/1/model.onnx")
        times = {"created_at": START, "deadline": START + timedelta(minutes=10)}
        with history.database.write() as session:
            row = ModelTask(id=task, project_id=history.project_id, job_id=job, owner="ada", kind="export", **times)
            row.state, row.request, row.claim = TaskState.RUNNING.value, "{}", 1
            session.add(row)
        assert found(history) == []
        with history.database.write() as session:
            session.get_one(ModelTask, task).state = TaskState.FAILED.value
        assert found(history) == [key]


class TestDatasets:
    def test_one_without_a_row_counts_after_a_day(self, history: History) -> None:
        old, fresh = (id_made("ds", UPLOADING + timedelta(minutes=minutes)) for minutes in (1, -1))
        for dataset in (old, fresh):
            history.put(f"datasets/{dataset}")
        assert found(history) == [f"datasets/{old}"]

    def test_one_with_a_row_never_does(self, history: History) -> None:
        dataset = id_made("ds", timedelta(days=900))
        key = history.put(f"datasets/{dataset}")
        with history.database.write() as session:
            add_dataset(session, add_project(session, "other"), id=dataset, storage_key=key)
        assert found(history) == []


class TestBundles:
    def test_one_without_a_row_counts_after_a_day(self, history: History) -> None:
        old, fresh = (id_made("bun", UPLOADING + timedelta(minutes=minutes)) for minutes in (1, -1))
        for bundle in (old, fresh):
            history.put(bundle_key(bundle))
        assert found(history) == [f"bundles/{old}"]

    def test_one_with_a_row_never_does(self, history: History) -> None:
        bundle = id_made("bun", timedelta(days=900))
        key = history.put(bundle_key(bundle))
        with history.database.write() as session:
            add_bundle(session, add_project(session, "other"), id=bundle, storage_key=key)
        assert found(history) == []


class TestOthers:
    def test_files_from_before_the_database_wait_for_their_rows(self, history: History) -> None:
        # A database was lost and a new one is there, beside the old storage: a restore will name these files again.
        before, after = (timedelta(days=1000, minutes=minutes) for minutes in (1, -1))
        for ago in (before, after):
            history.put(f"artifacts/{id_made('job', ago)}/1/model.safetensors")
            history.put(f"datasets/{id_made('ds', ago)}")
        assert len(found(history)) == 2
        assert not any(id_made("job", before)[:12] in key for key in found(history))

    def test_a_database_without_a_project_has_no_files(self, history: History) -> None:
        job = history.job()
        history.put(f"artifacts/{job}/1/report.png")
        with history.database.write() as session:
            session.execute(delete(Job))
            session.execute(delete(Project))
        assert found(history) == []

    def test_what_is_not_ours_is_not_touched(self, history: History) -> None:
        # A bucket may be shared, and a later version may keep other things.
        for key in (
            "backups/monday.tar",
            "artifacts/readme.txt",
            "datasets/notes/x",
            "bundles/notes",
            "artifacts/job_1/1/x",
        ):
            history.put(key)
        assert found(history) == []
