"""The shape in which a part of the rows reaches a backend."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Arrays:
    """One part, as a backend loads it onto a device.

    `x`: (rows, features), float32 or float64. `y`: class numbers, int64, (rows,); or standardised targets, (rows, 1).
    """

    x: NDArray[np.floating]
    y: NDArray[np.generic]

    def __len__(self) -> int:
        return len(self.x)
