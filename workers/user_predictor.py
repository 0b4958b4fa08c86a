"""The process that answers rows with a python model: the framework, the user's code, one model, its own user.

Entry of a launcher, which has put it into the sandbox of code jobs. JSON lines over a stream socket, one request and
one answer at a time; the first line asks whether the model is there:

    -> {}                                          <- {"ready": true}
    -> {"request": {"rows": [...]} or {"csv": "..."}}   <- {"answer": {...}}
                                                   or {"error": {"code", "message", "errors": [...]}}

Rows are encoded, and outputs made into answers, as for our own models; what an answer holds is told in
`workers.predictor_handle`. Whoever asks believes nothing of it, since the user's code could write here too.
"""

import json
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from workers.data.encoding import Encoder, RowNote
from workers.model_file import Predictions, PythonDescription, decided
from workers.predictor import answered
from workers.protocol import ModelErrand
from workers.user_errand import opened, received, safely
from workers.user_model.built import UserModel

_MOST_ROWS: Final = 1024
"""Rows that go through the model together."""


@dataclass(frozen=True)
class UserAnswers:
    """A python model in memory; see `workers.predictor.Answers`."""

    description: PythonDescription
    encoder: Encoder
    model: UserModel

    def answer(self, rows: Sequence[Mapping[str, object]] | bytes) -> Predictions:
        """Answer rows of JSON, or a CSV file with a header.

        Raises:
            InvalidRows: with row, column and reason of each problem.
            InvalidTable: the file is not a table.
            UserCodeFailed: the model's own code fails.
        """
        raw = self.encoder.read_csv(rows) if isinstance(rows, bytes) else self.encoder.read_rows(rows)
        encoded = self.encoder.apply(raw.columns)
        return self._decide(encoded, raw.row_numbers, raw.warnings)

    def _decide(
        self, encoded: NDArray[np.float64], row_numbers: NDArray[np.int64], warnings: tuple[RowNote, ...]
    ) -> Predictions:
        with np.errstate(over="ignore"):  # a value beyond float32: its answer is not finite, and told with its row
            x = encoded.reshape(len(encoded), *self.description.input_shape).astype(np.float32)
        starts = range(0, len(x), _MOST_ROWS)
        pieces = [self.model.outputs(x[start : start + _MOST_ROWS]).astype(np.float64) for start in starts]
        logits = np.concatenate([np.empty((0, self.description.outputs)), *pieces])
        return decided(self.description, logits, row_numbers, warnings)


def main(messages: int, assignment: int) -> int:
    """Load the model, and answer until the socket ends."""
    errand = received(assignment)
    with socket.socket(fileno=messages) as connection, connection.makefile("rb") as lines:
        return serve(connection.sendall, lines, errand)


def serve(send: Callable[[bytes], object], lines: Any, errand: ModelErrand) -> int:  # noqa: ANN401 - a file of bytes
    """Answer each line; leaves when the model cannot be loaded, which the first answer says."""
    loaded: list[UserAnswers] = []
    for line in lines:
        found = safely(partial(_respond, loaded, json.loads(line), errand))
        send(json.dumps(found, allow_nan=False).encode() + b"\n")
        if not loaded:
            return os.EX_SOFTWARE
    return 0


def _respond(loaded: list[UserAnswers], asked: Mapping[str, Any], errand: ModelErrand) -> dict[str, Any]:
    if not loaded:
        loaded.append(UserAnswers(*opened(errand)))
    return answered(loaded[0], asked["request"]) if asked else {"ready": True}
