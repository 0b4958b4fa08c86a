"""The learning rate of every step, in Python's own float64: a backend gets a table of numbers, never a schedule.

So both frameworks use the same rates to the last bit, and there is no scheduler state: the step says it all.
"""

import math

import numpy as np
from numpy.typing import NDArray

from app.spec.training import Constant, Cosine


def learning_rates(
    schedule: Constant | Cosine, start: float, steps: int, first: int, count: int
) -> NDArray[np.float64]:
    """Return the rates of `count` steps from step `first` (counted from 0) of a job of `steps` steps."""
    if isinstance(schedule, Constant):
        return np.full(count, start)
    final = schedule.final_learning_rate
    half = (start - final) / 2
    turns = (math.cos(math.pi * step / steps) for step in range(first, first + count))
    return np.fromiter((final + half * (1 + turn) for turn in turns), np.float64, count)
