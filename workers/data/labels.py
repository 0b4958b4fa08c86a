"""Class labels as numbers 0..k-1, through an ordered vocabulary that is saved with the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Label = bool | int | float | str


@dataclass(frozen=True)
class Vocabulary:
    """The classes in order: numbers by value, text by code points. Class `i` of the model is `labels[i]`."""

    labels: tuple[Label, ...]

    @classmethod
    def of(cls, values: NDArray[np.generic]) -> Self:
        """Collect the classes of a whole column, not of the training part: a rare class keeps its place."""
        return cls(tuple(plain(value) for value in sorted(set(values.tolist()))))

    def encode(self, values: NDArray[np.generic]) -> NDArray[np.int64]:
        place = {label: index for index, label in enumerate(self.labels)}
        return np.fromiter((place[plain(value)] for value in values.tolist()), np.int64, len(values))

    def decode(self, classes: Sequence[int] | NDArray[np.int64]) -> list[Label]:
        return [self.labels[index] for index in classes]


def plain(value: Label) -> Label:
    """A label as JSON should show it: a whole number that the reader gave as a float is an integer."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def written(label: Label) -> str:
    """Write a label as the table's schema and the keys of a JSON object do: `true`, `7`, `pine tree`."""
    if isinstance(label, bool):
        return "true" if label else "false"
    return str(plain(label))
