"""What is wrong with a body is said in our words, with what would be right."""

from typing import Any

import pytest
from pydantic import BaseModel

from app.api.bodies import validated
from app.api.derivation import CloneRequest, RetryRequest
from app.api.errors import InvalidRequest
from app.api.model_views import ExportRequest, PredictRequest


def problems(content: object, model: type[BaseModel]) -> list[tuple[str, str, str | None]]:
    with pytest.raises(InvalidRequest) as caught:
        validated(content, model)
    return [(problem.pointer, problem.message, problem.suggestion) for problem in caught.value.problems]


class TestUnknownKey:
    def test_the_nearest_known_one_is_suggested(self) -> None:
        assert problems({"form": "best"}, RetryRequest) == [
            ("/form", "'form' is no key of this body; did you mean 'from'?", "from")
        ]

    def test_without_one_all_are_named(self) -> None:
        (found,) = problems({"format": "onnx", "x" * 1000: 1}, ExportRequest)
        assert found[1].endswith("xx' is no key of this body; its keys are format, timeout_s.")
        assert (len(found[1]) < 200, found[2]) == (True, None)


class TestExamples:
    @pytest.mark.parametrize(
        ("content", "model", "pointer", "example"),
        [
            ([], RetryRequest, "", '{"from": "last"}'),
            ({"from": 3}, RetryRequest, "/from", '"last"'),
            ({"spec": []}, CloneRequest, "/spec", '{"hyperparameters": {"learning_rate": 0.01}}'),
            ({}, PredictRequest, "/rows", '[{"age": 41}]'),
            ({"rows": []}, PredictRequest, "/rows", '[{"age": 41}]'),
            ({"rows": [1]}, PredictRequest, "/rows/0", '[{"age": 41}]'),
            ({"rows": [{}], "timeout_s": -1}, PredictRequest, "/timeout_s", "30"),
            ({"format": "h5"}, ExportRequest, "/format", '"onnx"'),
        ],
    )
    def test_every_refusal_has_a_valid_one(
        self, content: Any, model: type[BaseModel], pointer: str, example: str
    ) -> None:
        ((where, message, _),) = problems(content, model)
        assert where == pointer
        assert message.endswith(f", for example {example}.")
