"""One prediction: what is asked of the predictor, and how its answer or its refusal is told."""

import math
from typing import Any

import orjson
import pytest

from app.predictions.states import TaskKind
from app.predictions.tasks import Taken
from tests.api.client import ONE_DATABASE
from tests.workers.tasks.bench import ANSWER, Bench
from workers import answers
from workers.answers import Unanswered, answer
from workers.predictor_handle import PredictionRefused, PredictorGone

pytestmark = ONE_DATABASE


def taken(request: dict[str, Any]) -> Taken:
    return Taken("tsk_1", "job_1", TaskKind.PREDICT, orjson.dumps(request).decode(), 1, 12.5)


ROWS = taken({"rows": [{"a": 1}]})
TABLE = taken({"csv": "a\n1\n"})


def result(bench: Bench, task: Taken = ROWS) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(answer(task, bench.files(), bench.tools.models, bench.predictor))
    return found


def error(bench: Bench, task: Taken = ROWS) -> Unanswered:
    with pytest.raises(Unanswered) as caught:
        answer(task, bench.files(), bench.tools.models, bench.predictor)
    return caught.value


class TestAsking:
    def test_the_rows_go_to_the_predictor_with_the_time_that_is_left(self, bench: Bench) -> None:
        result(bench)
        ((folder, request, left_s),) = bench.predictor.asked
        assert (request, left_s) == ({"rows": [{"a": 1}]}, 12.5)
        assert folder.parent == bench.folder / "models"


class TestResult:
    def test_labels_and_probabilities_as_they_are(self, bench: Bench) -> None:
        assert result(bench) == {name: ANSWER[name] for name in ("labels", "probabilities", "warnings")}

    def test_numbers_that_are_not_finite_become_words(self, bench: Bench) -> None:
        bench.predictor.answer = {"values": [1.5, math.nan, math.inf, -math.inf], "warnings": []}
        assert result(bench)["values"] == [1.5, "NaN", "Infinity", "-Infinity"]
        bench.predictor.answer = {"labels": [1], "probabilities": [{"1": math.nan}], "warnings": []}
        assert result(bench)["probabilities"] == [{"1": "NaN"}]

    def test_warnings_as_they_are(self, bench: Bench) -> None:
        warning = {"row": 3, "column": "b", "message": "Never seen."}
        bench.predictor.answer = {**ANSWER, "warnings": [warning]}
        assert result(bench)["warnings"] == [warning]

    def test_one_that_is_too_large_is_refused(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(answers, "MOST_BYTES", 10)
        found = error(bench)
        assert (found.error["code"], found.again) == ("answer_too_large", False)


class TestRefused:
    PROBLEMS: tuple[dict[str, Any], ...] = (
        {"row": 2, "column": "a/b", "message": "'x' is no number."},
        {"row": 3, "column": None, "message": "It is no object."},
        {"row": None, "column": "c", "message": "No row has it."},
    )

    def refused(self, bench: Bench, code: str = "invalid_rows") -> None:
        bench.predictor.answer = PredictionRefused(code, "They do not fit.", list(self.PROBLEMS))

    def test_rows_get_pointers_into_the_body(self, bench: Bench) -> None:
        self.refused(bench)
        found = error(bench)
        assert (found.error["code"], found.error["message"], found.again) == ("invalid_rows", "They do not fit.", False)
        assert [(item["pointer"], item["row"], item["column"]) for item in found.error["errors"]] == [
            ("/rows/1/a~1b", 2, "a/b"),
            ("/rows/2", 3, None),
            ("", None, "c"),
        ]

    def test_a_table_has_its_own_rows_and_no_pointers(self, bench: Bench) -> None:
        self.refused(bench)
        found = error(bench, TABLE).error["errors"]
        assert [(item["pointer"], item["row"]) for item in found] == [("", 2), ("", 3), ("", None)]

    @pytest.mark.parametrize(
        ("code", "told"),
        [
            ("artifact_unreadable", "model_unreadable"),
            ("too_large", "answer_too_large"),
            ("never_heard_of", "internal"),
        ],
    )
    def test_each_refusal_has_a_code_of_the_api(self, bench: Bench, code: str, told: str) -> None:
        self.refused(bench, code)
        assert error(bench).error["code"] == told

    def test_a_thousand_problems_are_not_told_one_by_one(self, bench: Bench) -> None:
        many = [{"row": row, "column": "a", "message": "No."} for row in range(1, 1001)]
        bench.predictor.answer = PredictionRefused("invalid_rows", "They do not fit.", many)
        assert len(error(bench).error["errors"]) == 100


class TestTryAgain:
    def test_a_predictor_that_died(self, bench: Bench) -> None:
        bench.predictor.answer = PredictorGone("Killed.")
        found = error(bench)
        assert (found.error["code"], found.again) == ("task_lost", True)

    def test_a_model_that_this_host_cannot_read(self, bench: Bench) -> None:
        bench.spoil()
        found = error(bench)
        assert (found.error["code"], found.again) == ("model_unreadable", True)
