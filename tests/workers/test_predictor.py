"""The process that predicts, and the worker's handle on it: a real child, answers compared with the model's own."""

import json
import os
import shutil
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from numpy.testing import assert_allclose

from tests.workers.exports.models import MODELS, random_rows, write_model
from tests.workers.model_file.saved import penguins, trained
from tests.workers.training_jobs import csv_job
from workers import predictor
from workers.model_file import LoadedModel, Predictions, predict_rows
from workers.predictor import Cache, respond
from workers.predictor_handle import PredictionRefused, Predictor, PredictorGone


@pytest.fixture
def child() -> Iterator[Predictor]:
    """A child that the test may kill."""
    found = Predictor()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def shared() -> Iterator[Predictor]:
    """A child that serves the tests which leave it alive; to start one takes a second."""
    found = Predictor()
    found.start()
    yield found
    found.stop()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shape, layers = MODELS["dense"]
    return write_model(tmp_path / "model", layers, shape)


def rows_of(name: str = "dense", rows: int = 3) -> list[dict[str, Any]]:
    return [{"pixels": row} for row in random_rows(name, rows).tolist()]


def pid_of(child: Predictor) -> int:
    assert child._child is not None
    return child._child.process.pid


def once_sent(monkeypatch: pytest.MonkeyPatch, child: Predictor, act: Callable[[], object]) -> None:
    """Act between a request and its answer."""
    receive = child._receive

    def act_first(connection: socket.socket, deadline: float) -> bytes:
        act()
        return receive(connection, deadline)

    monkeypatch.setattr(child, "_receive", act_first)


class TestAnswers:
    def test_rows_are_answered_as_the_model_does(self, shared: Predictor, folder: Path) -> None:
        expected = predict_rows(folder, rows_of())

        found = shared.predict(folder, {"rows": rows_of()})

        assert (found["task"], found["framework"], found["warnings"]) == ("classification", "tensorflow", [])
        assert found["labels"] == expected.labels
        assert expected.probabilities is not None
        assert [list(row) for row in found["probabilities"]] == [["a", "b", "c"]] * 3
        assert_allclose([list(row.values()) for row in found["probabilities"]], expected.probabilities, rtol=1e-12)

    def test_values_of_a_regression(self, shared: Predictor, tmp_path: Path) -> None:
        shape, layers = MODELS["lstm"]
        folder = write_model(tmp_path, layers, shape, task="regression")
        expected = predict_rows(folder, rows_of("lstm"))

        found = shared.predict(folder, {"rows": rows_of("lstm")})

        assert found == {
            "task": "regression",
            "framework": "tensorflow",
            "values": list(expected.values if expected.values is not None else ()),
            "warnings": [],
        }

    def test_csv_and_rows_of_text_with_gaps(self, shared: Predictor, tmp_path: Path) -> None:
        data = {"target": "species", "missing": "impute"}
        model, _ = trained(csv_job(tmp_path, penguins(), data, hyperparameters={"epochs": 1}))

        by_file = shared.predict(model, {"csv": "island,bill_length_mm,sex\nDream,40.5,male\nAtlantis,,\n"})
        by_row = shared.predict(model, {"rows": [{"island": "Dream", "bill_length_mm": 40.5, "sex": "male"}]})

        assert by_file["labels"][0] == by_row["labels"][0]
        assert [(note["row"], note["column"]) for note in by_file["warnings"]] == [(3, "island")]

    def test_one_child_serves_models_one_after_the_other(self, shared: Predictor, tmp_path: Path) -> None:
        first = pid_of(shared)
        for name in ("dense", "conv2d same", "gru", "dense"):
            shape, layers = MODELS[name]
            folder = write_model(tmp_path / name, layers, shape)

            found = shared.predict(folder, {"rows": rows_of(name)})

            assert found["labels"] == predict_rows(folder, rows_of(name)).labels
        assert pid_of(shared) == first

    def test_threads_get_their_own_answers(self, shared: Predictor, folder: Path) -> None:
        rows = rows_of(rows=8)
        expected = predict_rows(folder, rows).probabilities
        assert expected is not None
        found: dict[int, float] = {}

        def ask(place: int) -> None:
            found[place] = shared.predict(folder, {"rows": [rows[place]]})["probabilities"][0]["a"]

        threads = [threading.Thread(target=ask, args=[place]) for place in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert_allclose([found[place] for place in range(8)], expected[:, 0], rtol=1e-6)


class TestRefusals:
    def test_rows_that_do_not_fit_are_named(self, shared: Predictor, folder: Path) -> None:
        with pytest.raises(PredictionRefused) as caught:
            shared.predict(folder, {"rows": [*rows_of(), {"pixel": 1}, {}]})

        assert caught.value.code == "invalid_rows"
        assert [(error["row"], error["column"]) for error in caught.value.errors] == [(4, "pixel")]
        assert "There is no column 'pixel'" in caught.value.errors[0]["message"]

    @pytest.mark.parametrize(
        ("request_", "code"),
        [
            ({"rows": []}, "invalid_rows"),
            ({"rows": "all"}, "invalid_rows"),
            ({"csv": ""}, "invalid_rows"),
            ({"csv": "pixels\n1\n"}, "invalid_rows"),
            ({"rows": [{"pixels": [1e300] * 6}]}, "invalid_rows"),
        ],
    )
    def test_what_is_no_row_is_refused_and_the_child_goes_on(
        self, shared: Predictor, folder: Path, request_: dict[str, Any], code: str
    ) -> None:
        pid = pid_of(shared)

        with pytest.raises(PredictionRefused) as caught:
            shared.predict(folder, request_)

        assert caught.value.code == code
        assert caught.value.errors
        assert shared.predict(folder, {"rows": rows_of()})["labels"]
        assert pid_of(shared) == pid

    def test_csv_that_is_no_table_names_the_row_and_the_child_goes_on(self, shared: Predictor, tmp_path: Path) -> None:
        data = {"target": "species", "features": ["bill_length_mm"], "missing": "drop"}
        folder = trained(csv_job(tmp_path, penguins(), data))[0]
        name = "bill_length_mm"
        pid = pid_of(shared)
        for content, row in ((f"{name},sex\n1\n", 2), (f"{name},{name}\n1,2\n", 1), (f"{name}\n\ud800\n", None)):
            with pytest.raises(PredictionRefused) as caught:
                shared.predict(folder, {"csv": content})
            assert caught.value.code == "invalid_rows"
            assert [error["row"] for error in caught.value.errors] == [row]
        assert pid_of(shared) == pid

    def test_model_that_cannot_be_used_is_refused(self, shared: Predictor, folder: Path) -> None:
        (folder / "model.json").write_text("{}")

        with pytest.raises(PredictionRefused, match="no description of a model") as caught:
            shared.predict(folder, {"rows": rows_of()})
        assert (caught.value.code, caught.value.errors) == ("artifact_unreadable", [])

    def test_request_that_would_fill_the_memory_is_refused_at_once(self, folder: Path) -> None:
        child = Predictor(memory_bytes=16 * 1024**2)

        with pytest.raises(PredictionRefused, match=r"more than 1 MB\. Send fewer at a time") as caught:
            child.predict(folder, {"csv": "x" * 1024**2})
        assert caught.value.code == "too_large"
        assert child._child is None


class TestChild:
    def test_one_that_was_killed_is_replaced_at_the_next_request(self, child: Predictor, folder: Path) -> None:
        child.start()
        first = psutil.Process(pid_of(child))
        first.kill()
        psutil.wait_procs([first])

        assert child.predict(folder, {"rows": rows_of()})["labels"]
        assert pid_of(child) != first.pid

    def test_one_that_dies_with_a_request_says_so(
        self, child: Predictor, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        child.start()
        os.kill(pid_of(child), signal.SIGSTOP)
        once_sent(monkeypatch, child, lambda: os.kill(pid_of(child), signal.SIGKILL))

        with pytest.raises(PredictorGone, match="has ended"):
            child.predict(folder, {"rows": rows_of()})
        monkeypatch.undo()
        assert child.predict(folder, {"rows": rows_of()})["labels"]

    def test_one_that_takes_too_long_is_killed(self, child: Predictor, folder: Path) -> None:
        child.start()
        frozen = psutil.Process(pid_of(child))
        frozen.suspend()

        with pytest.raises(PredictorGone, match=r"took longer than 0\.2 s"):
            child.predict(folder, {"rows": rows_of()}, timeout_s=0.2)

        assert not frozen.is_running()

    def test_waiting_for_others_counts_as_time(self, child: Predictor, folder: Path) -> None:
        with child._turn, pytest.raises(PredictorGone, match="Other predictions took the whole time"):
            child.predict(folder, {"rows": rows_of()}, timeout_s=0.05)

    def test_stop_ends_a_request_that_is_under_way(
        self, child: Predictor, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        child.start()
        os.kill(pid_of(child), signal.SIGSTOP)
        stopper = threading.Thread(target=child.stop)
        once_sent(monkeypatch, child, stopper.start)

        with pytest.raises(PredictorGone):
            child.predict(folder, {"rows": rows_of()})
        stopper.join()
        assert child._child is None

    def test_stop_is_harmless_twice_and_before_a_start(self) -> None:
        child = Predictor()
        child.stop()
        child.start()
        process = psutil.Process(pid_of(child))
        child.stop()
        child.stop()

        assert not process.is_running()

    def test_leaves_by_itself_when_the_worker_goes_away(self, child: Predictor) -> None:
        child.start()
        process = psutil.Process(pid_of(child))
        assert child._child is not None

        child._child.connection.close()

        gone, _ = psutil.wait_procs([process], timeout=30)
        assert gone

    def test_interpreter_that_is_not_there_is_told(self, tmp_path: Path) -> None:
        with pytest.raises(PredictorGone, match="does not start: No such file"):
            Predictor(interpreter=tmp_path / "absent").start()

    def test_has_no_framework_no_database_and_one_thread(self, shared: Predictor, folder: Path) -> None:
        shared.predict(folder, {"rows": rows_of()})

        process = psutil.Process(pid_of(shared))
        maps = Path(f"/proc/{process.pid}/maps").read_text()
        assert not any(f"/{name}/" in maps for name in ("torch", "tensorflow", "keras", "sqlalchemy", "psycopg"))
        assert process.environ()["OMP_NUM_THREADS"] == "1"


class TestCache:
    def model(self, tmp_path: Path, name: str) -> Path:
        shape, layers = MODELS["dense"]
        return write_model(tmp_path / name, layers, shape)

    def test_model_is_read_once(self, tmp_path: Path) -> None:
        cache, folder = Cache(10**6), self.model(tmp_path, "a")

        assert cache.model(folder) is cache.model(folder)

    def test_other_files_in_the_same_place_are_another_model(self, tmp_path: Path) -> None:
        cache, folder = Cache(10**6), self.model(tmp_path, "a")
        old = cache.model(folder)
        shutil.rmtree(folder)
        self.model(tmp_path, "a")

        assert cache.model(folder) is not old

    def test_least_recently_used_one_is_given_up(self, tmp_path: Path) -> None:
        a, b, c = (self.model(tmp_path, name) for name in "abc")
        cache = Cache(2 * LoadedModel.load(a).size_bytes)
        first, second = cache.model(a), cache.model(b)
        assert cache.model(a) is first

        cache.model(c)

        assert len(cache) == 2
        assert cache.model(a) is first
        assert cache.model(b) is not second

    def test_model_larger_than_the_cache_is_kept_while_it_is_used(self, tmp_path: Path) -> None:
        cache, a, b = Cache(1), self.model(tmp_path, "a"), self.model(tmp_path, "b")

        assert cache.model(a) is cache.model(a)
        cache.model(b)
        assert len(cache) == 1

    def test_broken_model_is_not_kept(self, tmp_path: Path) -> None:
        folder = self.model(tmp_path, "a")
        text = (folder / "model.json").read_text()
        (folder / "model.json").write_text("{}")
        cache = Cache(10**6)
        line = json.dumps({"model": str(folder), "request": {"rows": rows_of()}}).encode()
        assert respond(cache, line)["error"]["code"] == "artifact_unreadable"

        (folder / "model.json").write_text(text)

        assert "answer" in respond(cache, line)


class TestRespond:
    def test_memory_that_runs_out_is_told(self, folder: Path) -> None:
        class Full(Cache):
            def model(self, directory: Path) -> LoadedModel:
                raise MemoryError(directory)

        line = json.dumps({"model": str(folder), "request": {"rows": rows_of()}}).encode()

        assert respond(Full(1), line)["error"]["code"] == "too_large"

    def test_rows_nested_without_end_are_refused(self, folder: Path) -> None:
        line = b'{"model": "' + str(folder).encode() + b'", "request": {"rows": ' + b"[" * 10**5 + b"]" * 10**5 + b"}}"

        assert respond(Cache(10**6), line)["error"]["code"] == "invalid_rows"

    @pytest.mark.parametrize(("label", "text"), [("Adelie", "Adelie"), (3, "3"), (2.5, "2.5"), (True, "true")])
    def test_labels_name_probabilities_as_json_writes_them(self, label: Any, text: str) -> None:
        assert predictor.label_text(label) == text

    def test_numbers_that_are_not_finite_are_sent_by_their_names(self, folder: Path) -> None:
        """JSON has no such numbers, and a process that cannot write its answer would be lost."""
        model = LoadedModel.load(folder)
        answer = predictor.as_json(model, Predictions(values=np.array([1.5, np.inf, -np.inf, np.nan])))
        assert answer["values"] == [1.5, "Infinity", "-Infinity", "NaN"]

    def test_labels_keep_their_type(self, folder: Path) -> None:
        described = json.loads((folder / "model.json").read_text())
        (folder / "model.json").write_text(json.dumps(described | {"classes": [7, 2.5, "x"]}))
        line = json.dumps({"model": str(folder), "request": {"rows": rows_of()}}).encode()

        answer = respond(Cache(10**6), line)["answer"]

        assert set(answer["labels"]) <= {7, 2.5, "x"}
        assert list(answer["probabilities"][0]) == ["7", "2.5", "x"]
        assert np.isclose(sum(answer["probabilities"][0].values()), 1)
