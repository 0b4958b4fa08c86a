"""Rows divided into a training, a validation and a test part."""

from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from app.errors import TrainshedError
from app.spec.data import EffectiveSplit
from app.spec.parts import Parts, part_sizes

Rows = NDArray[np.int64]
PartName = Literal["train", "validation", "test"]
PART_NAMES: Final[tuple[PartName, ...]] = ("train", "validation", "test")

_STREAM: Final = 0x5B117
"""Keeps this draw apart from the batch orders, which are drawn from [seed, epoch]."""


class TooFewRows(TrainshedError):
    """Nothing is left to train on; after rows with gaps were dropped, or in a very small table."""

    code = "invalid_data"

    def __init__(self, rows: int, split: EffectiveSplit) -> None:
        if split.method == "given":
            why = f"No usable row has 'train' in column '{split.column}'. Write train, validation or test in each row."
        else:
            why = (
                f"The split (validation {split.validation}, test {split.test}) of {rows} usable rows leaves none to "
                "train on. Use more rows, or smaller shares, for example 0.2 and 0.0."
            )
        super().__init__(why)
        self.rows = rows


@dataclass(frozen=True)
class Division:
    """The rows of each part, as places in the table's usable rows, each part in rising order."""

    train: Rows
    validation: Rows
    test: Rows

    def rows(self, part: PartName) -> Rows:
        return {"train": self.train, "validation": self.validation, "test": self.test}[part]


def divide(count: int, classes: Rows | None, split: EffectiveSplit, column: NDArray[Any] | None = None) -> Division:
    """Divide `count` rows.

    Stratified, by `classes` (numbers from 0): validation and test take from each class in proportion, by largest
    remainders, so the parts have the sizes of `part_sizes`; a class gives its last row to no other part than training,
    however small it is. When such classes leave a part short, larger classes fill it. Given: `column` has the name of
    each row's part; shares and seed mean nothing. Time: `column` has what rows are ordered by, the last ones are the
    test, those before them validation; of equal moments the earlier row in the table comes first.

    Raises:
        TooFewRows: no row is left for training.
    """
    if split.method == "given":
        return _given(count, split, column)
    sizes = part_sizes(count, split)
    if sizes.train < 1:
        raise TooFewRows(count, split)
    if split.method == "time":
        return _in_time(sizes, split, column)
    order = np.random.default_rng([split.seed, count, _STREAM]).permutation(count)
    if split.method == "random" or classes is None:
        test, validation, train = np.split(order, [sizes.test, sizes.test + sizes.validation])
        return Division(np.sort(train), np.sort(validation), np.sort(test))
    return _stratified(order, classes, sizes)


def _given(count: int, split: EffectiveSplit, column: NDArray[Any] | None) -> Division:
    names = _required(split, column)
    train, validation, test = (np.flatnonzero(names == name).astype(np.int64) for name in PART_NAMES)
    if not len(train):
        raise TooFewRows(count, split)
    return Division(train, validation, test)


def _in_time(sizes: Parts, split: EffectiveSplit, column: NDArray[Any] | None) -> Division:
    order = np.argsort(_required(split, column), kind="stable").astype(np.int64)
    train, validation, test = np.split(order, [sizes.train, sizes.train + sizes.validation])
    return Division(np.sort(train), np.sort(validation), np.sort(test))


def _required(split: EffectiveSplit, column: NDArray[Any] | None) -> NDArray[Any]:
    if column is None:
        raise ValueError(f"A split by method '{split.method}' needs its column.")
    return column


def _stratified(order: Rows, classes: Rows, sizes: Parts) -> Division:
    left = np.bincount(classes)
    members = np.split(order[np.argsort(classes[order], kind="stable")], np.cumsum(left)[:-1])
    of_test = _shares(left, sizes.test, left - 1)
    of_validation = _shares(left, sizes.validation, left - 1 - of_test)
    cuts = np.stack([of_test, of_test + of_validation], axis=1)
    pieces = [np.split(rows, cut) for rows, cut in zip(members, cuts, strict=True)]
    test, validation, train = (np.concatenate([piece[place] for piece in pieces]) for place in range(3))
    return Division(np.sort(train), np.sort(validation), np.sort(test))


def _shares(sizes: Rows, total: int, most: Rows) -> Rows:
    """Give `total` rows to classes in proportion to `sizes`, none more than its `most`.

    Largest remainders (Hamilton's method), the lower class first on a tie; what a full class cannot take goes round
    again among the others.
    """
    exact = sizes * total / sizes.sum()
    shares: Rows = np.minimum(np.floor(exact).astype(np.int64), np.maximum(most, 0))
    missing = total - int(shares.sum())
    for label in cycle(np.argsort(-(exact - shares), kind="stable").tolist()):
        if missing <= 0 or (shares >= most).all():
            return shares
        if shares[label] < most[label]:
            shares[label] += 1
            missing -= 1
    return shares
