"""What a training decides after each epoch: is it the best, is it the last, does the learning rate fall.

All of it is remembered in a checkpoint, so a resumed training decides as the unbroken one would have.
"""

import math
from collections.abc import Mapping

from app.spec.training import Hyperparameters, ReduceOnPlateau
from workers.backends.schedules import Plateau
from workers.checkpoints import BestSoFar, PatienceState, Position
from workers.early_stopping import Best, Patience


class Decisions:
    """The memory of one training between its epochs; `position`: that of the checkpoint it goes on from.

    The best epoch is that of early stopping's monitor, else of the validation loss, else of the loss.
    """

    def __init__(self, settings: Hyperparameters, *, validated: bool, position: Position | None = None) -> None:
        stopping = settings.early_stopping
        self.restore_best = stopping is not None and stopping.restore_best
        monitor = stopping.monitor if stopping else "val_loss" if validated else "loss"
        self._best = Best(monitor, position.best if position else None)
        self._patience = Patience(stopping, position.patience if position else None) if stopping else None
        schedule = settings.schedule
        self._plateau = Plateau(schedule) if isinstance(schedule, ReduceOnPlateau) else None
        self._watched = schedule.monitor if isinstance(schedule, ReduceOnPlateau) else None
        if self._plateau is not None and position is not None and position.plateau is not None:
            self._plateau.restore(position.plateau)
        self.stopped_early = position is not None and position.stopped_early

    def observe(self, values: Mapping[str, float], epoch: int, step: int) -> bool:
        """Take in the values of an epoch; whether it is the best so far."""
        best = self._best.observe(values, epoch, step)
        if self._plateau is not None and self._watched is not None:
            self._plateau.observe(values.get(self._watched, math.nan))
        if self._patience is not None:
            self.stopped_early = self._patience.observe(values)
        return best

    @property
    def monitor(self) -> str:
        return self._best.monitor

    @property
    def best(self) -> BestSoFar | None:
        return self._best.so_far

    @property
    def scale(self) -> float:
        """What reduce_on_plateau has made of the learning rate."""
        return 1.0 if self._plateau is None else self._plateau.scale

    @property
    def patience(self) -> PatienceState | None:
        return None if self._patience is None else self._patience.state()

    @property
    def plateau(self) -> dict[str, float | int | None] | None:
        return None if self._plateau is None else self._plateau.state()
