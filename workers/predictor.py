"""The process that answers rows: NumPy alone, no framework, models kept in memory.

`python -P -m workers.predictor --socket FD --memory BYTES --cache BYTES`. JSON lines over a stream socket, one request
and one answer at a time:

    -> {"model": "/folder", "request": {"rows": [...]} or {"csv": "..."}}
    <- {"answer": {...}}  or  {"error": {"code", "message", "errors": [{"row", "column", "message"}]}}

It ends when the socket does. What an answer and an error hold is told in `workers.predictor_handle`.
"""

import argparse
import json
import socket
import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Protocol

from app.series.nonfinite import to_json
from app.tables import InvalidTable
from workers.confinement import confine
from workers.data.encoding import InvalidRows
from workers.data.labels import Label
from workers.model_file import (
    DESCRIPTION_NAME,
    WEIGHTS_NAME,
    Description,
    LoadedModel,
    Predictions,
    PythonDescription,
    UnreadableModel,
)

_FEWEST: Final = 1
"""The model that was asked for last stays, however large."""


class Answers(Protocol):
    """A model in memory that answers rows of JSON, or a CSV file."""

    @property
    def description(self) -> Description | PythonDescription: ...

    def answer(self, rows: Sequence[Mapping[str, object]] | bytes) -> Predictions: ...


class Cache:
    """Models by folder, the least recently used ones given up when the weights together take too much."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._models: OrderedDict[tuple[Any, ...], LoadedModel] = OrderedDict()

    def __len__(self) -> int:
        return len(self._models)

    def model(self, directory: Path) -> LoadedModel:
        """Give the model of a folder, as it is there now: other files under the same name are another model.

        Raises:
            UnreadableModel: it cannot be used.
        """
        key = _identity(directory)
        if key not in self._models:
            self._models[key] = LoadedModel.load(directory)
        self._models.move_to_end(key)
        while len(self._models) > _FEWEST and self._size() > self._most_bytes:
            self._models.popitem(last=False)
        return self._models[key]

    def _size(self) -> int:
        return sum(model.size_bytes for model in self._models.values())


def _identity(directory: Path) -> tuple[Any, ...]:
    facts: list[Any] = [str(directory)]
    for name in (DESCRIPTION_NAME, WEIGHTS_NAME):
        try:
            stat = (directory / name).stat()
        except OSError as error:
            raise UnreadableModel(directory, f"{error.strerror}: '{name}'.") from error
        facts += [stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns]
    return tuple(facts)


def respond(cache: Cache, line: bytes) -> dict[str, Any]:
    """Answer one request; whatever is wrong with it becomes an error that says so."""

    def work() -> dict[str, Any]:
        asked = json.loads(line)
        return answered(cache.model(Path(asked["model"])), asked["request"])

    return told(work)


def answered(model: Answers, request: Mapping[str, Any]) -> dict[str, Any]:
    """Answer the rows of a request."""
    rows = request["csv"].encode() if "csv" in request else request["rows"]
    return {"answer": as_json(model, model.answer(rows))}


def told(work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Do the work; an error of the rows or the model becomes one that can be sent."""
    try:
        return work()
    except (InvalidRows, InvalidTable) as error:
        errors = [
            {"row": problem.row, "column": problem.column, "message": problem.message} for problem in error.problems
        ]
        return _error(InvalidRows.code, str(error), errors)
    except UnicodeEncodeError:
        message = "The CSV text has half of a character (a surrogate of UTF-16 alone). Write it in UTF-8."
        return _error("invalid_rows", message, [{"row": None, "column": None, "message": message}])
    except UnreadableModel as error:
        return _error(error.code, str(error), [])
    except RecursionError:
        message = "The rows are nested too deep. A row is an object of columns and values."
        return _error("invalid_rows", message, [{"row": None, "column": None, "message": message}])
    except MemoryError:
        return _error("too_large", "The rows need more memory than a prediction may use. Send fewer at a time.", [])


def _error(code: str, message: str, errors: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {"error": {"code": code, "message": message, "errors": list(errors)}}


def as_json(model: Answers, found: Predictions) -> dict[str, Any]:
    """Write answers as the API shows them; labels keep their type, and name the probabilities as text.

    A number that is not finite, where rows far from those of training overflow a model, is written as its name.
    """
    description = model.description
    answer: dict[str, Any] = {"task": description.task, "framework": description.framework}
    if found.labels is not None and found.probabilities is not None and description.classes is not None:
        names = [label_text(label) for label in description.classes]
        answer["labels"] = found.labels
        shares = found.probabilities.tolist()
        answer["probabilities"] = [dict(zip(names, map(to_json, row), strict=True)) for row in shares]
    elif found.values is not None:
        answer["values"] = [to_json(value) for value in found.values.tolist()]
    answer["warnings"] = [{"row": note.row, "column": note.column, "message": note.message} for note in found.warnings]
    return answer


def label_text(label: Label) -> str:
    """A label as the key of a JSON object: text as it is, numbers and booleans as JSON writes them."""
    return label if isinstance(label, str) else json.dumps(label)


def main(arguments: Sequence[str]) -> int:
    """Answer until the socket ends."""
    parser = argparse.ArgumentParser(prog="python -P -m workers.predictor")
    for option in ("--socket", "--memory", "--cache"):
        parser.add_argument(option, required=True, type=int)
    options = parser.parse_args(arguments)
    confine(options.memory)
    cache = Cache(options.cache)
    with socket.socket(fileno=options.socket) as connection, connection.makefile("rb") as lines:
        for line in lines:
            answer = json.dumps(respond(cache, line), allow_nan=False)
            connection.sendall(answer.encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
