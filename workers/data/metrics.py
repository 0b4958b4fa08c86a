"""Metrics from sums over rows. A device adds up, once per report the sums are read and turned into numbers here.

For classification the sums are (loss, hits); for regression (loss, absolute errors, squared errors), in standardised
units: `mae` and `rmse` are brought back to the target's own unit here, `r2` has none. `loss` stays as the optimizer
sees it, without the l1 and l2 terms, so that `loss` and `val_loss` can be compared.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Sums = NDArray[np.float64]
Task = Literal["classification", "regression"]

_WIDTH: Final[dict[Task, int]] = {"classification": 2, "regression": 3}


@dataclass(frozen=True)
class Yardstick:
    """What a part's sums are measured with: its row count, the target's unit, and how much the target varies.

    `variation` is the sum of squared distances from the part's own mean, in standardised units; `r2` is undefined (NaN,
    left out of reports) where the target does not vary.
    """

    task: Task
    rows: int
    unit: float = 1.0
    variation: float = 0.0

    @classmethod
    def of(cls, task: Task, targets: NDArray[np.generic], unit: float = 1.0) -> "Yardstick":
        if task == "classification":
            return cls(task, len(targets))
        values = targets.astype(np.float64).ravel()
        return cls(task, len(values), unit, float(((values - values.mean()) ** 2).sum()) if len(values) else 0.0)


def no_sums(task: Task) -> Sums:
    return np.zeros(_WIDTH[task])


def readings(sums: Sums, yardstick: Yardstick, metrics: Sequence[str]) -> dict[str, float]:
    """Return `loss` and the metrics asked for, by name; the sums cover the whole part, which is not empty."""
    rows = yardstick.rows
    values = {"loss": float(sums[0]) / rows}
    if yardstick.task == "classification":
        values["accuracy"] = float(sums[1]) / rows
    else:
        values["mae"] = float(sums[1]) / rows * yardstick.unit
        values["rmse"] = math.sqrt(float(sums[2]) / rows) * yardstick.unit
        if yardstick.variation > 0:
            values["r2"] = 1.0 - float(sums[2]) / yardstick.variation
    return {name: value for name, value in values.items() if name == "loss" or name in metrics}
