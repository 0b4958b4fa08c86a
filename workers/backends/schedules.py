"""The learning rate of every step, in Python's own float64: a backend gets a table of numbers, never a schedule.

So both frameworks use the same rates to the last bit. All schedules but reduce_on_plateau are functions of the step;
that one keeps a factor and a few counters, which `Plateau` holds and a checkpoint stores.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.spec.training import Constant, Cosine, Exponential, ReduceOnPlateau, Schedule, Step, higher_is_better


def learning_rates(
    schedule: Schedule,
    start: float,
    steps: int,
    first: int,
    count: int,
    steps_per_epoch: int = 1,
    scale: float = 1.0,
) -> NDArray[np.float64]:
    """Return the rates of `count` steps from step `first` (counted from 0) of a job of `steps` steps.

    `scale`: what reduce_on_plateau has made of the rate so far (`Plateau.scale`); the other schedules have none. The
    rate of a step does not depend on how the job is cut into calls.
    """
    after = steps - schedule.warmup_steps
    rates = (
        start * scale * (step + 1) / schedule.warmup_steps
        if step < schedule.warmup_steps
        else _rate(schedule, start, after, step - schedule.warmup_steps, steps_per_epoch, scale)
        for step in range(first, first + count)
    )
    return np.fromiter(rates, np.float64, count)


def _rate(schedule: Schedule, start: float, steps: int, step: int, steps_per_epoch: int, scale: float) -> float:
    match schedule:
        case Constant():
            return start
        case Cosine():
            final = schedule.final_learning_rate
            return final + (start - final) / 2 * (1 + math.cos(math.pi * step / steps))
        case Step():
            return float(start * schedule.factor ** (step // (steps_per_epoch * schedule.every_epochs)))
        case Exponential():
            return float(start * schedule.factor ** (step / steps_per_epoch))
        case ReduceOnPlateau():
            return max(start * scale, min(schedule.min_learning_rate, start))


class Plateau:
    """The state of reduce_on_plateau: `scale` is what the learning rate is multiplied by.

    Better means by more than `min_delta` (absolute) than the best so far; after more than `patience` epochs in a row
    that were not better the scale becomes smaller, and the next `cooldown` epochs are not counted: torch's
    ReduceLROnPlateau with `threshold_mode="abs"`. The lower bound `min_learning_rate` is kept by `learning_rates`.
    """

    def __init__(self, schedule: ReduceOnPlateau) -> None:
        self._schedule = schedule
        self._sign = -1.0 if higher_is_better(schedule.monitor) else 1.0
        self.scale = 1.0
        self._best = math.inf
        self._bad = 0
        self._cooling = 0

    def observe(self, value: float) -> None:
        """Look at the monitored value after an epoch; one that is not a finite number is not better."""
        value *= self._sign
        if value < self._best - self._schedule.min_delta:
            self._best, self._bad = value, 0
        else:
            self._bad += 1
        if self._cooling:
            self._cooling -= 1
            self._bad = 0
        if self._bad > self._schedule.patience:
            self.scale *= self._schedule.factor
            self._cooling, self._bad = self._schedule.cooldown, 0

    def state(self) -> dict[str, Any]:
        """Return everything that later decisions depend on, as JSON values."""
        best = self._best if math.isfinite(self._best) else None
        return {"scale": self.scale, "best": best, "bad": self._bad, "cooling": self._cooling}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what `state` returned."""
        self.scale = float(state["scale"])
        self._best = math.inf if state["best"] is None else float(state["best"])
        self._bad, self._cooling = int(state["bad"]), int(state["cooling"])
