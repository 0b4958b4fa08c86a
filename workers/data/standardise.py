"""Columns brought to mean 0 and standard deviation 1, by statistics of the training part alone."""

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]


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
        peak = np.abs(rows).max(axis=0)
        peak[peak == 0] = 1.0
        shares = rows / peak
        scale = shares.std(axis=0) * peak
        return cls(mean=shares.mean(axis=0) * peak, scale=np.where(scale > 0, scale, 1.0))

    @classmethod
    def identity(cls, columns: int) -> Self:
        return cls(mean=np.zeros(columns), scale=np.ones(columns))

    def apply(self, rows: Matrix) -> Matrix:
        return np.asarray((rows - self.mean) / self.scale)

    def undo(self, rows: Matrix) -> Matrix:
        return np.asarray(rows * self.scale + self.mean)
