"""One prediction: the model at hand, the rows to the predictor, its answer as the task's result."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

import orjson

from app.artifacts.models import Artifact
from app.errors import TrainshedError
from app.predictions.tasks import Taken, task_error
from app.series.nonfinite import to_json
from app.spec.problems import pointer
from workers.model_store import ModelStore, ModelUnreadable
from workers.predictor_handle import PredictionRefused, PredictorGone

# What the database and the client can take; a table of 10 000 rows with 100 classes is about 20 MB.
MOST_BYTES: Final = 32 * 1024 * 1024
_MOST_ERRORS: Final = 100
_TOO_LARGE: Final = "The answer would have more than {limit} bytes; send fewer rows at a time."
_CODES: Final[Mapping[str, str]] = {
    "invalid_rows": "invalid_rows",
    "artifact_unreadable": "model_unreadable",
    "too_large": "answer_too_large",
    "user_code": "model_failed",
}


class Predictor(Protocol):
    """The child that answers rows, as tasks use it; see workers.predictor_handle."""

    def predict(self, model_dir: Path, request: Mapping[str, Any], timeout_s: float = ...) -> dict[str, Any]: ...

    def stop(self) -> None: ...


class Unanswered(TrainshedError):
    """A task without an answer; `error` is what it ends with, `again` whether another worker may try."""

    def __init__(self, error: dict[str, Any], *, again: bool = False) -> None:
        super().__init__(str(error["message"]))
        self.error = error
        self.again = again


def answer(taken: Taken, files: Sequence[Artifact], models: ModelStore, predictor: Predictor) -> str:
    """The result of a prediction, as JSON.

    Raises:
        Unanswered: why there is none.
    """
    request = orjson.loads(taken.request)
    try:
        with models.held(files) as folder:
            found = predictor.predict(folder, request, timeout_s=taken.left_s)
    except ModelUnreadable as error:
        raise Unanswered(task_error(error.code, str(error)), again=True) from error
    except PredictionRefused as refused:
        raise Unanswered(_told(refused, is_table="csv" in request)) from refused
    except PredictorGone as gone:
        raise Unanswered(task_error("task_lost", str(gone)), again=True) from gone
    text = orjson.dumps(_result(found))
    if len(text) > MOST_BYTES:
        raise Unanswered(task_error("answer_too_large", _TOO_LARGE.format(limit=MOST_BYTES)))
    return text.decode()


def _result(found: Mapping[str, Any]) -> dict[str, Any]:
    """Numbers that are none of the finite ones become the API's words: JSON has no others."""
    if "values" in found:
        answers: dict[str, Any] = {"values": [_number(value) for value in found["values"]]}
    else:
        rows = [{label: _number(share) for label, share in row.items()} for row in found["probabilities"]]
        answers = {"labels": found["labels"], "probabilities": rows}
    return {**answers, "warnings": found["warnings"]}


def _number(value: float | str) -> float | str:
    return value if isinstance(value, str) else to_json(value)


def _told(refused: PredictionRefused, *, is_table: bool) -> dict[str, Any]:
    problems = [_problem(item, is_table=is_table) for item in refused.errors[:_MOST_ERRORS]]
    return task_error(_CODES.get(refused.code, "internal"), str(refused), problems)


def _problem(item: Mapping[str, Any], *, is_table: bool) -> dict[str, Any]:
    """Rows of JSON are counted from 1 and have pointers; those of a CSV file as in the file, whose header is row 1."""
    row, column = item["row"], item["column"]
    parts: list[str | int] = [] if is_table or row is None else ["rows", row - 1]
    if parts and column is not None:
        parts.append(column)
    return {"pointer": pointer(parts), "message": item["message"], "row": row, "column": column}
