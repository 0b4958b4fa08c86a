"""The threads that take tasks: each is answered once, whatever fails meanwhile, and none is lost by a stop."""

from pathlib import Path

import orjson
import pytest
from sqlalchemy import delete

from app.artifacts.models import Artifact
from app.broker import CHANNEL_ANSWERS
from app.predictions.states import TaskKind
from app.predictions.tasks import export_request
from tests.api.client import ONE_DATABASE
from tests.predictions.asking import Asker
from tests.workers.eventually import eventually
from tests.workers.outage import BreakableDatabase
from tests.workers.tasks.bench import ANSWER, Bench, make_bench
from workers import task_taker
from workers.exports import ExportFailed
from workers.predictor_handle import PredictionRefused, PredictorGone


class TestPredictions:
    def test_what_waits_is_answered_and_the_bell_rings(self, bench: Bench) -> None:
        task_id = bench.ask()
        bench.start()
        task = bench.wait(task_id)
        assert (task.state, task.claim, task.worker_id) == ("succeeded", 1, bench.asker.worker_id)
        assert task.result is not None
        assert orjson.loads(task.result)["labels"] == ANSWER["labels"]
        eventually(lambda: (CHANNEL_ANSWERS, task_id) in bench.ears.rung, "the ring")

    def test_without_a_ring_it_is_found_all_the_same(self, bench: Bench) -> None:
        bench.start()
        assert bench.wait(bench.asker.ask()).state == "succeeded"

    def test_a_refusal_ends_it_with_its_reason(self, bench: Bench) -> None:
        bench.predictor.answer = PredictionRefused("invalid_rows", "They do not fit.", [])
        bench.start()
        task = bench.wait(bench.ask())
        assert (task.state, task.error) == (
            "failed",
            {"code": "invalid_rows", "message": "They do not fit.", "errors": []},
        )

    def test_a_predictor_that_dies_twice_ends_it(self, bench: Bench) -> None:
        bench.predictor.answer = PredictorGone("Killed.")
        bench.start()
        task = bench.wait(bench.ask())
        assert (task.state, task.claim, len(bench.predictor.asked)) == ("failed", 2, 2)
        assert task.error is not None
        assert task.error["code"] == "task_lost"

    def test_a_model_that_is_gone_meanwhile(self, bench: Bench) -> None:
        with bench.asker.database.write() as session:
            session.execute(delete(Artifact))
        bench.start()
        task = bench.wait(bench.ask())
        assert task.error is not None
        assert task.error["code"] == "model_unreadable"

    def test_a_fault_of_ours_ends_one_task_and_not_the_thread(self, bench: Bench) -> None:
        bench.predictor.answer = ZeroDivisionError("/home/ada")
        bench.start()
        task = bench.wait(bench.ask())
        assert task.error == {"code": "internal", "message": "The worker failed; its log has the reason.", "errors": []}
        bench.predictor.answer = ANSWER
        assert bench.wait(bench.ask()).state == "succeeded"

    def test_a_fenced_answer_is_dropped(self, bench: Bench) -> None:
        bench.predictor.gate.clear()
        bench.start()
        task_id = bench.ask()
        eventually(lambda: bool(bench.predictor.asked), "the prediction")
        with bench.asker.database.write() as session:
            session.connection().exec_driver_sql("UPDATE model_tasks SET claim = 2")  # another worker has it now
        bench.predictor.gate.set()
        eventually(lambda: (CHANNEL_ANSWERS, task_id) in bench.ears.rung, "the end")
        assert bench.asker.task(task_id).state == "running"

    @ONE_DATABASE
    def test_slots_answer_at_the_same_time(self, asker: Asker, breakable: BreakableDatabase, tmp_path: Path) -> None:
        bench = make_bench(asker, breakable, tmp_path, slots=3)
        bench.predictor.gate.clear()
        bench.start()
        asked = [bench.ask() for _ in range(3)]
        try:
            eventually(lambda: len(bench.predictor.asked) == 3, "three at once")
        finally:
            bench.predictor.gate.set()
            assert {bench.wait(task_id).state for task_id in asked} == {"succeeded"}
            bench.tasks.stop()

    @ONE_DATABASE
    def test_an_export_never_keeps_a_prediction_waiting(self, bench: Bench) -> None:
        bench.predictor.gate.clear()
        bench.start()
        prediction = bench.ask()
        eventually(lambda: bool(bench.predictor.asked), "the prediction")
        assert bench.wait(bench.export()).state == "succeeded"
        assert bench.asker.task(prediction).state == "running"

    @ONE_DATABASE
    def test_a_predictor_that_nobody_asks_gives_its_memory_back(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bench.start()
        bench.wait(bench.ask())
        assert not bench.predictor.stopped.is_set()
        monkeypatch.setattr("workers.predictions._IDLE_S", 0.0)
        eventually(bench.predictor.stopped.is_set, "the stop")


class TestDatabaseDown:
    @pytest.fixture(autouse=True)
    def quick(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(task_taker, "_AFTER_FAULT_S", 0.01)

    def test_an_answer_is_written_when_it_is_back(self, bench: Bench, breakable: BreakableDatabase) -> None:
        bench.predictor.gate.clear()
        bench.start()
        task_id = bench.ask()
        eventually(lambda: bool(bench.predictor.asked), "the prediction")
        breakable.down = True
        refused = breakable.refused
        bench.predictor.gate.set()
        eventually(lambda: breakable.refused > refused + 2, "a few tries")
        breakable.down = False
        assert bench.wait(task_id).state == "succeeded"

    def test_a_lost_answer_to_the_commit_changes_nothing(self, bench: Bench, breakable: BreakableDatabase) -> None:
        bench.predictor.gate.clear()
        bench.start()
        task_id = bench.ask()
        eventually(lambda: bool(bench.predictor.asked), "the prediction")
        breakable.lose_answers = 1
        bench.predictor.gate.set()
        assert bench.wait(task_id).state == "succeeded"
        assert bench.wait(bench.ask()).state == "succeeded"

    def test_looking_goes_on_afterwards(self, bench: Bench, breakable: BreakableDatabase) -> None:
        breakable.down = True
        bench.start()
        task_id = bench.ask()
        eventually(lambda: breakable.refused > 2, "a few looks")
        breakable.down = False
        assert bench.wait(task_id).state == "succeeded"


class TestStop:
    def test_what_is_under_way_goes_back_into_the_queue(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("workers.predictions.LAST_WORDS_S", 0.05)
        bench.predictor.gate.clear()
        bench.start()
        task_id = bench.ask()
        eventually(lambda: bool(bench.predictor.asked), "the prediction")
        bench.tasks.stop()
        assert bench.wait(task_id, "queued").claim == 1

    @ONE_DATABASE
    def test_what_is_nearly_done_is_finished(self, bench: Bench) -> None:
        bench.start()
        task_id = bench.ask()
        eventually(lambda: bool(bench.predictor.asked), "the prediction")
        bench.tasks.stop()
        assert bench.asker.task(task_id).state == "succeeded"

    @ONE_DATABASE
    def test_without_a_start_and_twice_it_is_harmless(self, bench: Bench) -> None:
        bench.tasks.stop()
        bench.tasks.stop()


class TestExports:
    def test_the_files_are_stored_and_become_artifacts(self, bench: Bench) -> None:
        bench.start()
        task = bench.wait(bench.export())
        assert task.state == "succeeded", task.error
        assert task.result == '{"names":["model.onnx"]}'
        (made,) = [file for file in bench.files() if file.name == "model.onnx"]
        assert made.storage_key == f"exports/{bench.asker.job_id}/{task.id}/1/model.onnx"
        path = bench.storage.local_path(made.storage_key)
        assert path is not None
        assert path.read_bytes() == b"onnx"
        assert (made.attempt, made.kind, made.size_bytes) == (1, "model", 4)
        assert list((bench.folder / "exports").iterdir()) == []

    def test_one_that_is_made_again_replaces_the_other(self, bench: Bench) -> None:
        bench.start()
        first = bench.wait(bench.export())
        bench.exporter.content = b"onnx, again"
        second = bench.wait(bench.export())
        (made,) = [file for file in bench.files() if file.name == "model.onnx"]
        assert second.id in made.storage_key
        keys = [key for key in bench.storage.list("exports") if first.id in key]
        eventually(lambda: bench.storage.list("exports") == [made.storage_key], f"{keys} to be removed")

    def test_a_failure_ends_it_with_the_reason(self, bench: Bench) -> None:
        bench.exporter.error = ExportFailed("onnx", "It gives other outputs.")
        bench.start()
        task = bench.wait(bench.export())
        assert task.error == {
            "code": "export_failed",
            "message": "The export 'onnx' failed: It gives other outputs.",
            "errors": [],
        }
        assert bench.storage.list("exports") == []

    @ONE_DATABASE
    def test_a_job_that_is_gone_meanwhile_leaves_no_file(self, bench: Bench) -> None:
        task_id = bench.export()

        def delete_job() -> None:
            with bench.asker.database.write() as session:
                for table in ("artifacts", "job_heads", "jobs"):
                    session.connection().exec_driver_sql(f"DELETE FROM {table}")  # noqa: S608 - fixed names

        bench.exporter.meanwhile = delete_job
        bench.start()
        eventually(lambda: (CHANNEL_ANSWERS, task_id) in bench.ears.rung, "the end")
        eventually(lambda: bench.storage.list("exports") == [], "the files are removed")

    def test_a_lost_answer_to_the_commit_keeps_the_files(self, bench: Bench, breakable: BreakableDatabase) -> None:
        breakable.keep_answers, breakable.lose_answers = 1, 1  # the taking is answered, the end is not
        bench.start()
        task = bench.wait(bench.export())
        eventually(lambda: (CHANNEL_ANSWERS, task.id) in bench.ears.rung, "the second try")
        assert len(bench.storage.list("exports")) == 1

    @ONE_DATABASE
    def test_what_needs_tensorflow_is_left_to_a_worker_that_has_it(self, bench: Bench) -> None:
        bench.start()
        keras = bench.asker.ask(TaskKind.EXPORT, export_request("keras"))
        assert bench.wait(bench.export()).state == "succeeded"
        assert bench.asker.task(keras).state == "queued"
