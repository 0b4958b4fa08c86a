"""Columns brought to mean 0 and standard deviation 1, by statistics of the training part alone."""

from dataclasses import dataclass
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

_BLOCK: Final = 1 << 22
"""Values looked at together when fitting, so that a large table is not copied as a whole."""


@dataclass(frozen=True)
class Scaling:
    """What was fitted: `mean` and `scale` of each column, float64, shape (columns,).

    `scale` is the population standard deviation (divided by n, as scikit-learn's StandardScaler does), and 1 for a
    column that does not vary in the training part: such a column becomes 0 there instead of NaN.
    """

    mean: Matrix
    scale: Matrix

    @classmethod
    def fit(cls, rows: Matrix) -> Self:
        """Fit to the training rows, at least one.

        Columns are brought to [-1, 1] first: squares of 1e200 would overflow, and equal values get exactly their own
        mean, so that a constant column is seen as one.
        """
        mean, scale = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
        step = max(1, _BLOCK // len(rows))
        for start in range(0, rows.shape[1], step):
            columns = slice(start, start + step)
            mean[columns], scale[columns] = _statistics(rows[:, columns])
        return cls(mean=mean, scale=np.where(scale > 0, scale, 1.0))

    @classmethod
    def identity(cls, columns: int) -> Self:
        return cls(mean=np.zeros(columns), scale=np.ones(columns))

    def apply(self, rows: Matrix) -> Matrix:
        scaled = rows - self.mean
        scaled /= self.scale
        return np.asarray(scaled)

    def undo(self, rows: Matrix) -> Matrix:
        return np.asarray(rows * self.scale + self.mean)


def _statistics(rows: Matrix) -> tuple[Matrix, Matrix]:
    """Mean and population standard deviation of each column."""
    peak = np.maximum(rows.max(axis=0), -rows.min(axis=0))
    peak[peak == 0] = 1.0
    shares = rows / peak
    return shares.mean(axis=0) * peak, shares.std(axis=0) * peak
