"""From raw rows to original labels, or to values in the target's own unit, in NumPy alone."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from app.spec.shapes import trace
from workers.backends.initial import Weights
from workers.data.encoding import Encoder, InvalidRows, RowNote
from workers.data.fitted import OneHotInput
from workers.data.labels import Label
from workers.model_file.activations import softmax
from workers.model_file.description import Description
from workers.model_file.files import encoder_of, read
from workers.model_file.forward import NotARow, forward
from workers.model_file.python_description import PythonDescription

_MOST_ROWS: Final = 4096
_VALUES: Final = 1 << 23
"""Rows that go through the layers together are as many as keep what stands between two layers below this."""


@dataclass(frozen=True)
class Predictions:
    """Answers for rows, in their order.

    Classification: `labels`, and `probabilities` of shape (rows, classes), the classes in the order of the file.
    Regression: `values`, shape (rows), in the target's own unit. `warnings`: what the rows had that the model has not
    learnt.
    """

    labels: list[Label] | None = None
    probabilities: NDArray[np.float64] | None = None
    values: NDArray[np.float64] | None = None
    warnings: tuple[RowNote, ...] = ()


@dataclass(frozen=True)
class LoadedModel:
    """A model in memory, checked, ready to answer any number of times."""

    description: Description
    weights: Weights
    encoder: Encoder

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Read a model.

        Raises:
            UnreadableModel: a file is missing, of another format, or not the one that was saved.
        """
        description, weights = read(directory)
        return cls(description, weights, encoder_of(directory, description))

    @property
    def size_bytes(self) -> int:
        """What the weights take in memory."""
        return sum(value.nbytes for value in self.weights.values())

    def answer(self, rows: Sequence[Mapping[str, object]] | bytes) -> Predictions:
        """Answer rows of JSON, or a CSV file with a header.

        Raises:
            InvalidRows: with row, column and reason of each problem.
            InvalidTable: the file is not a table.
        """
        raw = self.encoder.read_csv(rows) if isinstance(rows, bytes) else self.encoder.read_rows(rows)
        return self.decide(self.encoder.apply(raw.columns), raw.row_numbers, raw.warnings)

    def decide(
        self, encoded: NDArray[np.float64], row_numbers: NDArray[np.int64], warnings: tuple[RowNote, ...] = ()
    ) -> Predictions:
        """Answer encoded rows, (rows, width); `row_numbers` are what errors call them.

        Raises:
            InvalidRows: a number is too large for the model, or an embedding has no such row.
        """
        x = encoded.reshape(len(encoded), *self.description.input_shape)
        return decided(self.description, self._logits(x, row_numbers), row_numbers, warnings)

    def _logits(self, x: NDArray[np.float64], row_numbers: NDArray[np.int64]) -> NDArray[np.float64]:
        pieces = [np.empty((0, self.description.outputs))]
        with np.errstate(over="ignore", invalid="ignore"):  # a value beyond float32: told with its row
            for start, block in self._blocks(x.astype(np.float32)):
                try:
                    pieces.append(forward(self.description.layers, self.weights, block).astype(np.float64))
                except NotARow as error:
                    row = int(row_numbers[start + error.place])
                    raise InvalidRows([RowNote(f"Row {row}: {error}", row)], 1) from error
        return np.concatenate(pieces)

    def _blocks(self, x: NDArray[np.float32]) -> Iterator[tuple[int, NDArray[np.float32]]]:
        shapes = [shape for _, _, shape in trace(self.description.layers, self.description.input_shape)]
        rows = min(_MOST_ROWS, max(1, _VALUES // max(map(math.prod, shapes))))
        for start in range(0, len(x), rows):
            yield start, x[start : start + rows]


def decided(
    description: Description | PythonDescription,
    logits: NDArray[np.float64],
    row_numbers: NDArray[np.int64],
    warnings: tuple[RowNote, ...] = (),
) -> Predictions:
    """Turn the logits of rows, (rows, outputs), into labels with probabilities, or values in the target's own unit.

    Raises:
        InvalidRows: a logit, or a value, is not a finite number.
    """
    own_code = isinstance(description, PythonDescription)
    _require_finite(logits, row_numbers, own_code=own_code)
    if description.classes is not None:
        labels = [description.classes[place] for place in logits.argmax(axis=1)]
        return Predictions(labels=labels, probabilities=softmax(logits), warnings=warnings)
    scaling = description.target_scaling
    with np.errstate(over="ignore", invalid="ignore"):
        values = logits[:, 0] if scaling is None else logits[:, 0] * scaling.scale[0] + scaling.mean[0]
    _require_finite(values[:, None], row_numbers, own_code=own_code)
    return Predictions(values=values, warnings=warnings)


def _require_finite(answers: NDArray[np.float64], row_numbers: NDArray[np.int64], *, own_code: bool) -> None:
    bad = np.flatnonzero(~np.isfinite(answers).all(axis=1))
    if len(bad):
        row = int(row_numbers[bad[0]])
        why = "a value of the row is far too large for it"
        why = f"{why}, or its own code makes it so" if own_code else why
        reason = f"Row {row}: the model's answer is not a finite number; {why}."
        raise InvalidRows([RowNote(reason, row)], len(bad))


def predict_rows(directory: Path, rows: Sequence[Mapping[str, object]] | bytes) -> Predictions:
    """Answer rows, `[{column: value, …}, …]`, or the bytes of a CSV file with a header.

    Raises:
        UnreadableModel: a file is missing, of another format, or not the one that was saved.
        InvalidRows: with row, column and reason of each problem.
        InvalidTable: the file is not a table.
    """
    return LoadedModel.load(directory).answer(rows)


def predict(directory: Path, rows: NDArray[np.float64]) -> Predictions:
    """Answer raw numbers: (rows, features), columns in the order of `features`, or (rows, *shape) of one array.

    For models whose features are numbers, booleans as 0 and 1 among them; `predict_rows` takes text too.

    Raises:
        UnreadableModel: a file is missing, of another format, or not the one that was saved.
        ValueError: the rows have another number of columns, or the model has a text feature.
        InvalidRows: a number is not finite, or too large for the model.
    """
    model = LoadedModel.load(directory)
    encoded = model.encoder.apply(_columns(model.encoder, rows))
    return model.decide(encoded, np.arange(1, len(rows) + 1))


def _columns(encoder: Encoder, rows: NDArray[np.float64]) -> dict[str, NDArray[Any]]:
    text = [column.name for column in encoder.inputs if isinstance(column, OneHotInput)]
    if text:
        raise ValueError(f"The feature '{text[0]}' is text, which an array of numbers cannot hold; use predict_rows.")
    first = encoder.inputs[0]
    if len(encoder.inputs) == 1 and first.shape is not None:
        if rows.shape[1:] != first.shape:
            raise ValueError(f"Rows must have the shape {first.shape} each; these have {rows.shape[1:]}.")
        return {first.name: rows}
    names = [column.name for column in encoder.inputs]
    if rows.ndim != 2 or rows.shape[1] != len(names):  # noqa: PLR2004 - rows and columns
        raise ValueError(f"Rows must have {len(names)} columns, {', '.join(names)}; these have shape {rows.shape}.")
    return {name: rows[:, place] for place, name in enumerate(names)}
