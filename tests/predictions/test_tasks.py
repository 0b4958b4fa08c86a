"""The life of a task: taken by one worker at a time, twice at most, and answered by whoever holds it now."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from app.errors import NotFound
from app.predictions.errors import TooManyTasks
from app.predictions.models import ModelTask
from app.predictions.states import TaskKind, TaskState
from app.predictions.tasks import (
    Taken,
    Wanted,
    export_request,
    fail,
    get_task,
    give_back,
    next_id,
    open_export,
    succeed,
    task_error,
)
from tests.predictions.asking import DEADLINE_S, INSTANCE, Asker
from tests.rows import add_project

ERROR = task_error("invalid_rows", "Row 1 has no column 'a'.")


class TestSubmit:
    def test_a_task_waits_with_a_deadline(self, asker: Asker) -> None:
        task = asker.task(asker.ask())
        assert (task.state, task.claim, task.owner) == ("queued", 0, "ada")
        assert task.deadline - task.created_at == timedelta(seconds=DEADLINE_S)

    def test_a_project_may_have_only_so_many_open(self, asker: Asker) -> None:
        asker.ask(max_open=2)
        asker.ask(max_open=2)
        with pytest.raises(TooManyTasks, match="2 predictions"):
            asker.ask(max_open=2)

    def test_what_is_over_does_not_count(self, asker: Asker) -> None:
        taken = asker.taken()
        with asker.database.write() as session:
            assert fail(session, taken, ERROR, asker.clock.now())
        asker.ask(max_open=1)


class TestTake:
    def test_the_oldest_comes_first(self, asker: Asker) -> None:
        asked = [asker.ask() for _ in range(3)]
        taken = [asker.take() for _ in range(4)]
        assert [item and item.id for item in taken] == [*asked, None]

    def test_it_is_fenced_and_names_its_worker(self, asker: Asker) -> None:
        taken = asker.taken()
        task = asker.task(taken.id)
        assert (taken.claim, taken.left_s, taken.request) == (1, DEADLINE_S, '{"rows": []}')
        assert (task.state, task.worker_id, task.instance) == ("running", asker.worker_id, INSTANCE)
        assert task.claimed_at == asker.clock.now()

    def test_two_that_ask_together_never_get_the_same(self, asker: Asker) -> None:
        asked = {asker.ask() for _ in range(8)}
        with ThreadPoolExecutor(8) as pool:
            taken = [item for item in pool.map(lambda _: asker.take(), range(8)) if item is not None]
        assert len({item.id for item in taken}) == len(taken)
        assert {item.id for item in taken} <= asked

    def test_a_kind_is_not_taken_for_another(self, asker: Asker) -> None:
        export = asker.ask(TaskKind.EXPORT, export_request("onnx"))
        assert asker.take() is None
        taken = asker.take(TaskKind.EXPORT)
        assert taken is not None
        assert (taken.id, taken.kind) == (export, TaskKind.EXPORT)

    def test_an_export_waits_for_a_worker_that_can_make_it(self, asker: Asker) -> None:
        keras = asker.ask(TaskKind.EXPORT, export_request("keras"))
        onnx = asker.ask(TaskKind.EXPORT, export_request("onnx"))
        able = [export_request("onnx"), export_request("report")]
        taken = [asker.take(TaskKind.EXPORT, able), asker.take(TaskKind.EXPORT, able), asker.take(TaskKind.EXPORT)]
        assert [item and item.id for item in taken] == [onnx, None, keras]

    def test_code_of_a_user_waits_for_a_worker_that_runs_its_framework(self, asker: Asker) -> None:
        keras, torch = asker.ask(framework="tensorflow"), asker.ask(framework="torch")
        taken = [asker.take(frameworks=["torch"]), asker.take(frameworks=["torch"])]
        assert [item and (item.id, item.framework) for item in taken] == [(torch, "torch"), None]
        assert asker.task(keras).state == "queued"

    def test_where_no_code_is_run_none_is_taken_and_the_other_way_round(self, asker: Asker) -> None:
        plain, code = asker.ask(), asker.ask(framework="torch")
        assert asker.take(frameworks=[]) is None
        taken = [asker.take(), asker.take(), asker.take(frameworks=["tensorflow", "torch"])]
        assert [item and item.id for item in taken] == [plain, None, code]

    def test_what_is_past_its_deadline_is_left(self, asker: Asker) -> None:
        asker.ask()
        asker.clock.advance(DEADLINE_S)
        assert asker.take() is None

    def test_looking_alone_changes_nothing(self, asker: Asker) -> None:
        asked = asker.ask()
        with asker.database.read() as session:
            assert next_id(session, Wanted(TaskKind.PREDICT)) == asked
            assert next_id(session, Wanted(TaskKind.EXPORT)) is None
        assert asker.task(asked).state == "queued"


class TestEnd:
    def test_a_result_is_kept_and_the_rows_are_not(self, asker: Asker) -> None:
        taken = asker.taken()
        with asker.database.write() as session:
            assert succeed(session, taken, '{"labels":["a"]}', asker.clock.now())
        task = asker.task(taken.id)
        assert (task.state, task.result, task.request) == ("succeeded", '{"labels":["a"]}', "{}")
        assert task.finished_at == asker.clock.now()

    def test_an_error_is_kept_and_the_rows_are_not(self, asker: Asker) -> None:
        taken = asker.taken()
        with asker.database.write() as session:
            assert fail(session, taken, ERROR, asker.clock.now())
        task = asker.task(taken.id)
        assert (task.state, task.error, task.request) == ("failed", ERROR, "{}")

    def test_an_export_keeps_what_was_asked(self, asker: Asker) -> None:
        asker.ask(TaskKind.EXPORT, export_request("onnx"))
        taken = asker.take(TaskKind.EXPORT)
        assert taken is not None
        with asker.database.write() as session:
            assert succeed(session, taken, '{"names":[]}', asker.clock.now())
        assert asker.task(taken.id).request == '{"format":"onnx"}'

    def test_the_first_end_counts(self, asker: Asker) -> None:
        taken = asker.taken()
        with asker.database.write() as session:
            assert succeed(session, taken, "{}", asker.clock.now())
            assert not fail(session, taken, ERROR, asker.clock.now())
            assert not succeed(session, taken, '{"other":1}', asker.clock.now())
            assert give_back(session, taken, ERROR, asker.clock.now()) is None
        assert asker.task(taken.id).result == "{}"


class TestGiveBack:
    def test_another_worker_may_try_once(self, asker: Asker) -> None:
        first = asker.taken()
        with asker.database.write() as session:
            assert give_back(session, first, ERROR, asker.clock.now()) is TaskState.QUEUED
        second = asker.take()
        assert second is not None
        assert (second.id, second.claim, second.request) == (first.id, 2, first.request)
        with asker.database.write() as session:
            assert give_back(session, second, ERROR, asker.clock.now()) is TaskState.FAILED
        assert asker.task(first.id).error == ERROR
        assert asker.take() is None

    def test_a_worker_that_comes_back_to_life_writes_nothing(self, asker: Asker) -> None:
        first = asker.taken()
        with asker.database.write() as session:
            give_back(session, first, ERROR, asker.clock.now())
        second = asker.take()
        assert second is not None
        with asker.database.write() as session:
            assert not succeed(session, first, '{"late":1}', asker.clock.now())
            assert give_back(session, first, ERROR, asker.clock.now()) is None
            assert succeed(session, second, '{"right":1}', asker.clock.now())
        assert asker.task(first.id).result == '{"right":1}'


class TestRead:
    def test_another_project_does_not_see_it(self, asker: Asker) -> None:
        task_id = asker.ask()
        with asker.database.write() as session:
            other = add_project(session, "other").id
        with asker.database.read() as session:
            assert get_task(session, asker.project_id, task_id).id == task_id
            with pytest.raises(NotFound):
                get_task(session, other, task_id)

    def test_an_open_export_is_found_by_what_it_makes(self, asker: Asker) -> None:
        task_id = asker.ask(TaskKind.EXPORT, export_request("onnx"))

        def found(form: str) -> str | None:
            with asker.database.read() as session:
                return open_export(session, asker.job_id, export_request(form))

        assert (found("onnx"), found("keras")) == (task_id, None)
        taken: Taken | None = asker.take(TaskKind.EXPORT)
        assert found("onnx") == task_id
        assert taken is not None
        with asker.database.write() as session:
            assert succeed(session, taken, "{}", asker.clock.now())
        assert found("onnx") is None

    def test_a_job_that_goes_takes_its_tasks_along(self, asker: Asker) -> None:
        task_id = asker.ask()
        with asker.database.write() as session:
            session.connection().exec_driver_sql("DELETE FROM artifacts")
            session.connection().exec_driver_sql("DELETE FROM job_heads")
            session.connection().exec_driver_sql("DELETE FROM jobs")
        with asker.database.read() as session:
            assert session.get(ModelTask, task_id) is None
