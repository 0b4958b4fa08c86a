"""Which checkpoint is the best so far, by the metric that the spec names, else by the loss."""

import math
from collections.abc import Mapping

from workers.scripts.assignment import Monitor


class Best:
    """The best value so far. Without a monitor the validation loss counts, and where there is none the loss."""

    def __init__(self, monitor: Monitor | None, value: float | None = None) -> None:
        self._monitor = monitor
        self._value = value

    def is_better(self, metrics: Mapping[str, float]) -> bool:
        """Whether these metrics have a better value than all before."""
        value = self._value_in(metrics)
        return value is not None and (self._value is None or self._sign * value < self._sign * self._value)

    def after(self, metrics: Mapping[str, float]) -> float | None:
        """The best value when these metrics count too."""
        return self._value_in(metrics) if self.is_better(metrics) else self._value

    def take(self, metrics: Mapping[str, float]) -> None:
        self._value = self.after(metrics)

    @property
    def _sign(self) -> float:
        return -1.0 if self._monitor is not None and self._monitor.mode == "max" else 1.0

    def _value_in(self, metrics: Mapping[str, float]) -> float | None:
        names = ("val_loss", "loss") if self._monitor is None else (self._monitor.metric,)
        value = next((metrics[name] for name in names if name in metrics), None)
        return None if value is None or math.isnan(value) else value
