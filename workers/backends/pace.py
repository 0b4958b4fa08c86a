"""How long steps take: how many go into one chunk, and how long the rest will take."""

from typing import Final

TARGET_S: Final = 0.25
"""What a chunk should take: far below a second, since a step can slow down when the machine gets busy."""

_GROWTH: Final = 8


class Pace:
    """How many steps go into one chunk, so that a job can be stopped at least once a second.

    Learns from the chunks that were run. The first has one step: a framework compiles its graph in it. Where a job is
    cut changes no result (see `base.Session`), so this may depend on the time of day.
    """

    def __init__(self, target_s: float = TARGET_S) -> None:
        self._target_s = target_s
        self.steps = 1

    def took(self, steps: int, seconds: float) -> None:
        """Learn that a chunk of `steps` took so long; the next may be up to 8 times as long as this one was to be.

        A chunk cut short by the end of an epoch is mostly overhead and teaches nothing, unless it was slow.
        """
        if steps < self.steps and seconds <= self._target_s:
            return
        fitting = int(self._target_s * steps / max(seconds, 1e-9))
        self.steps = max(1, min(fitting, self.steps * _GROWTH))


class Speed:
    """Rows and steps per second of training, the first chunk left out: in it a framework compiles its graph."""

    def __init__(self) -> None:
        self._chunks = 0
        self._steps = 0
        self._rows = 0
        self._seconds = 0.0

    def add(self, steps: int, rows: int, seconds: float) -> None:
        self._chunks += 1
        if self._chunks > 1:
            self._steps += steps
            self._rows += rows
            self._seconds += seconds

    @property
    def rows_per_s(self) -> float | None:
        """Rows per second over the whole job; None before there is anything to measure."""
        return self._rows / self._seconds if self._seconds > 0 else None

    def seconds_for(self, steps: int) -> float | None:
        """How long so many steps will take, validation not counted."""
        return steps * self._seconds / self._steps if self._steps else None


class WritePace:
    """When the next checkpoint is due, so that all of them together cost a small share of a job's time.

    The first is due after a second; the next when the last one's cost is 2 % of the time since, and at most once in 5
    seconds, or in 1 % of the job's time so far: an interrupted job loses at most about that much.
    """

    FIRST_S: Final = 1.0
    INTERVAL_S: Final = 5.0
    COST_SHARE: Final = 0.02
    LOSS_SHARE: Final = 0.01

    def __init__(self, now: float) -> None:
        self._began = now
        self._next = now + self.FIRST_S

    def due(self, now: float) -> bool:
        return now >= self._next

    def wrote(self, began: float, ended: float) -> None:
        """One was written; times in seconds, as `due` gets them."""
        cost, so_far = ended - began, ended - self._began
        self._next = ended + max(self.INTERVAL_S, cost / self.COST_SHARE, so_far * self.LOSS_SHARE)
