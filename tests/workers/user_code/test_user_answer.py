"""What a process says that runs code of a user's: an answer, an error, or something that is neither."""

import json
from typing import Any

import pytest

from workers.predictor_handle import PredictionRefused
from workers.user_answer import NoAnswer, read, read_made, read_ready

REQUEST: dict[str, Any] = {"rows": [{"a": 1}, {"a": 2}]}
CLASSES: dict[str, Any] = {
    "task": "classification",
    "framework": "torch",
    "labels": ["x", 7],
    "probabilities": [{"x": 0.25, "7": 0.75}, {"x": 1.0, "7": "NaN"}],
    "warnings": [{"row": 1, "column": None, "message": "never seen"}],
}
VALUES: dict[str, Any] = {"task": "regression", "framework": "torch", "values": [1.5, "Infinity"], "warnings": []}
MADE: dict[str, Any] = {"name": "model.onnx", "media_type": "application/octet-stream", "kind": "model"}


def line(**said: Any) -> bytes:
    return json.dumps(said).encode()


class TestAnswers:
    @pytest.mark.parametrize("answer", [CLASSES, VALUES])
    def test_an_answer_to_each_row_is_taken_as_it_is(self, answer: dict[str, Any]) -> None:
        assert read(line(answer=answer), REQUEST) == answer

    def test_of_a_table_it_is_not_known_how_many_rows_it_has(self) -> None:
        assert read(line(answer=VALUES), {"csv": "a\n1\n2\n3\n"}) == VALUES

    def test_that_it_is_ready(self) -> None:
        read_ready(line(ready=True))

    def test_which_file_it_made(self) -> None:
        assert read_made(line(made=MADE)) == "model.onnx"


class TestErrors:
    def test_an_error_keeps_its_code_and_its_rows(self) -> None:
        problem = {"row": 2, "column": "a", "message": "no number"}
        with pytest.raises(PredictionRefused, match="They do not fit") as caught:
            read(line(error={"code": "invalid_rows", "message": "They do not fit.", "errors": [problem]}), REQUEST)
        assert (caught.value.code, caught.value.errors) == ("invalid_rows", [problem])

    def test_it_is_cut_and_has_no_byte_that_a_database_refuses(self) -> None:
        with pytest.raises(PredictionRefused) as caught:
            read(line(error={"code": "user_code", "message": "a\0" + "b" * 10_000, "errors": []}), REQUEST)
        assert str(caught.value).startswith("a\ufffdb")
        assert len(str(caught.value)) == 4_000

    def test_no_code_of_ours_can_be_claimed(self) -> None:
        with pytest.raises(NoAnswer):
            read(line(error={"code": "task_lost", "message": "Lost.", "errors": []}), REQUEST)


class TestWhatIsNoAnswer:
    @pytest.mark.parametrize(
        "said",
        [
            pytest.param(b"", id="nothing"),
            pytest.param(b"Traceback", id="no JSON"),
            pytest.param(b"[" * 100_000, id="nested deep"),
            pytest.param(line(), id="nothing said"),
            pytest.param(line(ready=True), id="another word"),
            pytest.param(line(answer=CLASSES | {"more": 1}), id="an unknown key"),
            pytest.param(line(answer=CLASSES | {"labels": ["x"]}), id="a label too few"),
            pytest.param(line(answer=CLASSES | {"probabilities": []}), id="no probabilities"),
            pytest.param(line(answer=CLASSES | {"labels": [["x"], {}]}), id="labels that are none"),
            pytest.param(line(answer=VALUES | {"values": [1.0]}), id="a value too few"),
            pytest.param(line(answer=VALUES | {"values": [1.0, 2.0, 3.0]}), id="a value too many"),
            pytest.param(line(answer=VALUES | {"values": ["high", 1.0]}), id="a word for a number"),
            pytest.param(line(answer=VALUES | {"values": [True, 1.0]}), id="a truth for a number"),
            pytest.param(
                b'{"answer": {"task": "regression", "framework": "torch", "values": [NaN, 1]}}', id="bare NaN"
            ),
        ],
    )
    def test_it_is_refused(self, said: bytes) -> None:
        with pytest.raises(NoAnswer):
            read(said, REQUEST)

    @pytest.mark.parametrize("name", ["../model.onnx", "/etc/passwd", "other.onnx", ""])
    def test_no_other_file_can_be_named(self, name: str) -> None:
        with pytest.raises(NoAnswer):
            read_made(line(made=MADE | {"name": name}))

    def test_ready_is_no_file_and_a_file_is_not_ready(self) -> None:
        with pytest.raises(NoAnswer):
            read_made(line(ready=True))
        with pytest.raises(NoAnswer):
            read_ready(line(made=MADE))
