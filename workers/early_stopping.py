"""When training stops by itself, and which epoch was the best. Plain numbers in, decisions out; no framework.

Waiting is Keras' rule: an epoch counts as better when it beats the value to beat by more than `min_delta`, which then
moves to it. The best epoch is the best, by however little. An epoch without the value is not better.
"""

import math
from collections.abc import Mapping

from app.spec.training import EarlyStopping, higher_is_better
from workers.checkpoints import BestSoFar, PatienceState


def better(monitor: str, value: float, than: float | None, min_delta: float = 0.0) -> bool:
    """Whether a value of `monitor` beats another by more than `min_delta`; any finite value beats none."""
    if not math.isfinite(value):
        return False
    if than is None:
        return True
    return value - min_delta > than if higher_is_better(monitor) else value + min_delta < than


class Best:
    """Which epoch was the best by `monitor`; of equal ones the first."""

    def __init__(self, monitor: str, so_far: BestSoFar | None = None) -> None:
        self.monitor = monitor
        self.so_far = so_far

    def observe(self, values: Mapping[str, float], epoch: int, step: int) -> bool:
        """Take in the values of an epoch; whether it is the best one now."""
        value = values.get(self.monitor, math.nan)
        if not better(self.monitor, value, None if self.so_far is None else self.so_far.value):
            return False
        self.so_far = BestSoFar(value=value, epoch=epoch, step=step, metrics=finite(values))
        return True


class Patience:
    """Counts the epochs without a better value."""

    def __init__(self, settings: EarlyStopping, state: PatienceState | None = None) -> None:
        self._settings = settings
        self._reference = None if state is None else state.reference
        self._waited = 0 if state is None else state.waited

    def observe(self, values: Mapping[str, float]) -> bool:
        """Take in the values of an epoch; whether to stop after it."""
        monitor = self._settings.monitor
        value = values.get(monitor, math.nan)
        if better(monitor, value, self._reference, self._settings.min_delta):
            self._reference, self._waited = value, 0
            return False
        self._waited += 1
        return self._waited >= self._settings.patience

    def state(self) -> PatienceState:
        return PatienceState(reference=self._reference, waited=self._waited)


def finite(values: Mapping[str, float]) -> dict[str, float]:
    """Leave out what JSON cannot hold; a metric may be undefined."""
    return {name: value for name, value in values.items() if math.isfinite(value)}
