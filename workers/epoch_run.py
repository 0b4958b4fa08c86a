"""One epoch under way: which batches are left, and what those so far have summed up to."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from workers.backends.pace import Pace
from workers.checkpoints import Partial
from workers.data.metrics import Sums, Task, no_sums
from workers.data.order import EpochPlan


@dataclass
class EpochRun:
    """Mutable: the loop adds to it, a checkpoint in the middle of an epoch keeps it, `of` takes it up again.

    `steps` made, over `rows` rows, in `seconds` of computing; `rate` of the last of them.
    """

    sums: Sums
    steps: int = 0
    rows: int = 0
    seconds: float = 0.0
    rate: float = 0.0

    @classmethod
    def of(cls, partial: Partial | None, task: Task) -> "EpochRun":
        if partial is None:
            return cls(no_sums(task))
        return cls(np.array(partial.sums), partial.steps, partial.rows, partial.seconds, partial.rate)

    def partial(self) -> Partial | None:
        """What a checkpoint must know of it; None before its first step."""
        if not self.steps:
            return None
        return Partial(steps=self.steps, rows=self.rows, sums=self.sums.tolist(), seconds=self.seconds, rate=self.rate)

    def add(self, batches: NDArray[np.int64], sums: Sums, seconds: float, rate: float) -> None:
        """A chunk of batches was run; `sums` are those of the whole epoch now."""
        self.sums, self.rate = sums, rate
        self.steps += len(batches)
        self.rows += batches.size
        self.seconds += seconds

    def chunks(self, plan: EpochPlan, pace: Pace) -> Iterator[NDArray[np.int64]]:
        """Cut what is left of an epoch where the pace says; the uneven last batch is a chunk of its own."""
        while self.steps < len(plan.full):
            yield plan.full[self.steps : self.steps + pace.steps]
        if self.steps < plan.steps:
            yield plan.rest[None]

    @property
    def mean_loss(self) -> float:
        return float(self.sums[0]) / self.rows


class Window:
    """The rows of an epoch since it was last looked at."""

    def __init__(self, run: EpochRun) -> None:
        self._loss, self._rows = float(run.sums[0]), run.rows

    def mean_loss(self, run: EpochRun) -> float:
        """The mean loss of the rows since the last call, or since the window was opened; there must be some."""
        loss, rows = float(run.sums[0]), run.rows
        mean = (loss - self._loss) / (rows - self._rows)
        self._loss, self._rows = loss, rows
        return mean
