"""How one feature column becomes numbers, fitted to the training rows: what a model needs to read a row again.

A gap is NaN in numbers and None in objects; an infinity counts as a gap. `write` puts encoded rows into an array that
is there, (rows, width): of a column of many categories a second one might not fit.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from app.spec.data import Preprocess
from app.spec.inputs import InputColumn
from workers.data.standardise import Scaling

Values = NDArray[Any]
Matrix = NDArray[np.float64]
Shape = tuple[int, ...]

NO_CATEGORY: Final = -1


@dataclass(frozen=True)
class NumberInput:
    """A number of each row, or an array of `shape`: minus the mean, divided by the scale, element by element.

    `fill`: what a gap becomes before that, None where the model was not trained with gaps.
    """

    name: str
    scaling: Scaling
    fill: Matrix | None = None
    shape: Shape | None = None

    @property
    def width(self) -> int:
        return len(self.scaling.mean)

    @classmethod
    def fit(cls, column: InputColumn, values: Values, preprocess: Preprocess, *, impute: bool) -> Self:
        """Fit to the training rows. Gaps are filled first: the statistics are those of what the model will see."""
        numbers = numbers_of(values)
        fill = np.array([_typical(part, preprocess.impute) for part in numbers.T]) if impute else None
        if preprocess.numeric == "none":
            scaling = Scaling.identity(numbers.shape[1])
        else:
            scaling = Scaling.fit(_filled(numbers, fill))
        return cls(column.name, scaling, fill, column.shape)

    def write(self, values: Values, out: NDArray[np.floating]) -> None:
        out[:] = self.scaling.apply(_filled(numbers_of(values), self.fill))

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "encoding": "number" if self.shape is None else "tensor",
            "shape": None if self.shape is None else list(self.shape),
            "mean": self.scaling.mean.tolist(),
            "scale": self.scaling.scale.tolist(),
            "fill": None if self.fill is None else self.fill.tolist(),
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        return cls(
            raw["name"],
            Scaling(np.array(raw["mean"], np.float64), np.array(raw["scale"], np.float64)),
            None if raw["fill"] is None else np.array(raw["fill"], np.float64),
            None if raw["shape"] is None else tuple(raw["shape"]),
        )


@dataclass(frozen=True)
class BooleanInput:
    """True is 1 and false is 0, neither scaled; `fill`: the more frequent one of the training rows."""

    name: str
    fill: float | None = None
    width: int = 1
    shape: None = None

    @classmethod
    def fit(cls, column: InputColumn, values: Values, _: Preprocess, *, impute: bool) -> Self:
        known = [value for value in values.tolist() if value is not None]
        return cls(column.name, float(2 * sum(known) > len(known)) if impute else None)

    def write(self, values: Values, out: NDArray[np.floating]) -> None:
        numbers = numbers_of(values)
        out[:] = numbers if self.fill is None else np.where(np.isnan(numbers), self.fill, numbers)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "encoding": "boolean", "fill": self.fill}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        return cls(raw["name"], raw["fill"])


@dataclass(frozen=True)
class OneHotInput:
    """One number per category: 1 for the row's own, 0 for the others; all 0 for a category that is not known.

    `seen`: which categories the training rows have; a model has learnt nothing about the others, so they are unknown to
    it. `fill`: the most frequent category of the training rows, the first of equals.
    """

    name: str
    categories: tuple[str, ...]
    seen: tuple[bool, ...]
    fill: str | None = None
    shape: None = None

    @property
    def width(self) -> int:
        return len(self.categories)

    @classmethod
    def fit(cls, column: InputColumn, values: Values, _: Preprocess, *, impute: bool) -> Self:
        counts = Counter(value for value in values.tolist() if value is not None)
        categories = column.categories or ()
        often = max(categories, key=lambda category: counts[category], default=None)
        return cls(column.name, categories, tuple(counts[name] > 0 for name in categories), often if impute else None)

    def places(self, values: Values) -> NDArray[np.int64]:
        """The place of each row's category; -1 for one that the training rows did not have, and for a gap."""
        place: dict[str | None, int] = {
            name: index for index, (name, seen) in enumerate(zip(self.categories, self.seen, strict=True)) if seen
        }
        if self.fill is not None:
            place[None] = place.get(self.fill, NO_CATEGORY)
        return np.fromiter((place.get(value, NO_CATEGORY) for value in values.tolist()), np.int64, len(values))

    def write(self, values: Values, out: NDArray[np.floating]) -> None:
        places = self.places(values)
        known = np.flatnonzero(places >= 0)
        out[:] = 0.0
        out[known, places[known]] = 1.0

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "encoding": "one_hot",
            "categories": list(self.categories),
            "seen": list(self.seen),
            "fill": self.fill,
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Self:
        return cls(raw["name"], tuple(raw["categories"]), tuple(raw["seen"]), raw["fill"])


FittedInput = NumberInput | BooleanInput | OneHotInput
INPUTS: Final[dict[str, type[FittedInput]]] = {
    "number": NumberInput,
    "tensor": NumberInput,
    "boolean": BooleanInput,
    "one_hot": OneHotInput,
}


def numbers_of(values: Values) -> Matrix:
    """A column as float64, (rows, width): arrays are laid flat, None and infinities become NaN."""
    flat = values.reshape(len(values), -1).astype(np.float64)
    infinite = np.isinf(flat)
    if infinite.any():
        flat[infinite] = np.nan
    return flat


def _filled(numbers: Matrix, fill: Matrix | None) -> Matrix:
    if fill is None:
        return numbers
    gaps = np.isnan(numbers)
    return np.where(gaps, fill, numbers) if gaps.any() else numbers


def _typical(values: Matrix, how: str) -> float:
    """The mean or the median of what is there, 0 when nothing is. Scaled first: a sum of 1e308 would overflow."""
    known = values[~np.isnan(values)]
    peak = float(np.abs(known).max(initial=0.0))
    if not peak:
        return 0.0
    shares = known / peak
    return float(np.median(shares) if how == "median" else shares.mean()) * peak


def fit_input(column: InputColumn, values: Values, preprocess: Preprocess, *, impute: bool) -> FittedInput:
    """Fit one column to its training values."""
    return INPUTS[column.encoding].fit(column, values, preprocess, impute=impute)


def width_of(inputs: Sequence[FittedInput]) -> int:
    return sum(column.width for column in inputs)
