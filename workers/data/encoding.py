"""The fitted inputs of a model: raw columns in, float64 numbers out, the same for training and for predictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from app.spec.data import Preprocess
from app.spec.inputs import InputColumn
from workers.data.fitted import INPUTS, FittedInput, Matrix, Shape, Values, fit_input, width_of
from workers.data.rows import InvalidRows, RawRows, RowNote, read_csv_rows, read_json_rows

__all__ = ["Encoder", "InvalidRows", "RawRows", "RowNote"]

_FORMAT: Final = 1


@dataclass(frozen=True)
class Encoder:
    """How a row becomes a model's input; saved with the model.

    `inputs` in the order of the spec's features. `impute`: the model was trained with gaps, so a row may have them.
    `others`: the table's other columns, the target among them; rows may bring them along, they are not looked at.
    """

    inputs: tuple[FittedInput, ...]
    impute: bool = False
    others: tuple[str, ...] = ()

    @classmethod
    def fit(
        cls,
        columns: Mapping[str, Values],
        rows: NDArray[np.int64],
        inputs: Sequence[InputColumn],
        preprocess: Preprocess,
        *,
        impute: bool = False,
        others: Sequence[str] = (),
    ) -> Self:
        """Fit to the training rows alone. `columns`: raw values by name, all rows; `rows`: places of the training rows.

        Numbers get the mean and the population standard deviation of those rows; a gap becomes their mean or median,
        the most frequent category, or the more frequent of true and false.
        """
        fitted = (fit_input(column, columns[column.name][rows], preprocess, impute=impute) for column in inputs)
        return cls(tuple(fitted), impute, tuple(others))

    @property
    def width(self) -> int:
        """Numbers of an encoded row."""
        return width_of(self.inputs)

    @property
    def input_shape(self) -> Shape:
        """The shape of an encoded row as the model takes it: that of a single column of arrays, else (width,)."""
        if len(self.inputs) == 1 and self.inputs[0].shape is not None:
            return self.inputs[0].shape
        return (self.width,)

    def apply(self, columns: Mapping[str, Values]) -> Matrix:
        """Encode raw columns: float64, (rows, width), in C order; reshape to (rows, *input_shape) for the model."""
        encoded = np.empty((len(next(iter(columns.values()))), self.width))
        self.write(columns, encoded)
        return encoded

    def write(self, columns: Mapping[str, Values], out: NDArray[np.floating]) -> None:
        """Encode raw columns into an array (rows, width) of any width of float; numbers are rounded to it last."""
        start = 0
        for column in self.inputs:
            column.write(columns[column.name], out[:, start : start + column.width])
            start += column.width

    def read_rows(self, rows: Sequence[object]) -> RawRows:
        """Check rows of JSON, objects of column and value, and return their raw columns.

        Rows are counted from 1. A category that the model does not know is encoded as zeros, with a warning.

        Raises:
            InvalidRows: with row, column and reason of each problem, at most 20 of them: an unknown or missing column,
                another type, a number that is not finite, an array of another shape, a gap without `impute`, no rows.
        """
        return read_json_rows(self.inputs, rows, impute=self.impute, others=self.others)

    def read_csv(self, content: bytes) -> RawRows:
        """Check a CSV or TSV file with a header and return its raw columns; rows are counted as in the file.

        Raises:
            InvalidRows: as `read_rows`; a model whose input is an array takes no CSV.
            InvalidTable: the file is not a table.
        """
        return read_csv_rows(self.inputs, content, impute=self.impute, others=self.others)

    def to_json(self) -> dict[str, Any]:
        """All of it, ready for JSON; floats survive to the last bit."""
        return {
            "format": _FORMAT,
            "impute": self.impute,
            "others": list(self.others),
            "inputs": [column.to_json() for column in self.inputs],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote. Raises KeyError, TypeError or ValueError when it is something else."""
        if raw["format"] != _FORMAT:
            raise ValueError(f"An encoder of format {raw['format']!r} is not known here; {_FORMAT} is.")
        inputs = tuple(INPUTS[column["encoding"]].from_json(column) for column in raw["inputs"])
        return cls(inputs, bool(raw["impute"]), tuple(raw["others"]))
