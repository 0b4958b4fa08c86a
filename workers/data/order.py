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

    Every row is used exactly once in an epoch; the last batch is neither dropped nor filled up.
    """

    full: NDArray[np.int64]
    rest: NDArray[np.int64]

    @property
    def steps(self) -> int:
        return len(self.full) + bool(len(self.rest))


def epoch_plan(seed: int, epoch: int, rows: int, batch_size: int) -> EpochPlan:
    """The batches of an epoch (counted from 1): `default_rng([seed, epoch]).permutation(rows)`, cut in order."""
    order = np.random.default_rng([seed, epoch]).permutation(rows)
    batches = rows // batch_size
    return EpochPlan(
        full=order[: batches * batch_size].reshape(batches, batch_size), rest=order[batches * batch_size :]
    )


def steps_per_epoch(rows: int, batch_size: int) -> int:
    return -(-rows // batch_size)
