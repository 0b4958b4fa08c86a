"""In which order an epoch visits the training rows, and where it is cut into batches.

The order depends on the seed and the epoch alone, so the place in the data is two numbers (epoch and step) and both
frameworks see the same batches.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class EpochPlan:
    """An epoch's batches: `full` of shape (batches, batch size), and the rest, an uneven last batch, maybe empty.

    Every row is used exactly once in an epoch; the last batch is neither dropped nor filled up. With `fold_single` the
    rest may have one row more than the batch size.
    """

    full: NDArray[np.int64]
    rest: NDArray[np.int64]

    @property
    def steps(self) -> int:
        return len(self.full) + bool(len(self.rest))


def epoch_plan(seed: int, epoch: int, rows: int, batch_size: int, *, fold_single: bool = False) -> EpochPlan:
    """The batches of an epoch (counted from 1): `default_rng([seed, epoch]).permutation(rows)`, cut in order.

    `fold_single`: a last batch of one row joins the batch before it, because batch normalisation knows no variance of
    one row. A training part of one row alone stays a batch of one: that is refused before.
    """
    order = np.random.default_rng([seed, epoch]).permutation(rows)
    batches = rows // batch_size - _folds(rows, batch_size, fold_single=fold_single)
    return EpochPlan(
        full=order[: batches * batch_size].reshape(batches, batch_size), rest=order[batches * batch_size :]
    )


def steps_per_epoch(rows: int, batch_size: int, *, fold_single: bool = False) -> int:
    return -(-rows // batch_size) - _folds(rows, batch_size, fold_single=fold_single)


def largest_batch(rows: int, batch_size: int, *, fold_single: bool = False) -> int:
    """How many rows the largest batch of an epoch has: what a device must have room for."""
    return min(batch_size, rows) + _folds(rows, batch_size, fold_single=fold_single)


def _folds(rows: int, batch_size: int, *, fold_single: bool) -> bool:
    """Whether the last batch has one row and there is a batch before it that can take it."""
    return fold_single and rows > batch_size and rows % batch_size == 1
