"""Metrics from lines of output: a JSON object alone on a line with a number in it.

The keys `step`, `epoch`, `steps` and `epochs` say where the training is; every other number is a metric, nested objects
with `/` in the name. Texts, booleans, nulls and lists are nobody's.
"""

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

POSITION: Final = frozenset({"step", "epoch", "steps", "epochs"})
NAME_CHARACTERS: Final = 120
SERIES_LIMIT: Final = 200
"""Different metrics of one attempt."""
MOST: Final = 2**53
"""The largest step: larger numbers are not exact in JSON."""
_DEPTH: Final = 8


@dataclass(frozen=True)
class Sighting:
    """What one line says. `checkpoint`: the entry of the checkpoint folder that is complete now."""

    numbers: dict[str, float]
    position: dict[str, int] = field(default_factory=dict)
    checkpoint: str | None = None


def sight(line: bytes) -> Sighting | None:
    """Read a line; None when it is no metric but text for the log."""
    line = line.strip()
    if not (line.startswith(b"{") and line.endswith(b"}")):
        line = line.rpartition(b"\r")[2].strip()  # behind a progress bar
        if not (line.startswith(b"{") and line.endswith(b"}")):
            return None
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):  # ValueError: also text that is not UTF-8, and a number of 5,000 digits
        return None
    if not isinstance(said, dict):
        return None
    position = {key: number for key in POSITION if (number := _whole(said.get(key))) is not None}
    numbers = dict(_flat({key: value for key, value in said.items() if key not in POSITION}, "", 1))
    entry = said.get("checkpoint")
    checkpoint = entry if isinstance(entry, str) and entry else None
    return Sighting(numbers, position, checkpoint) if numbers or position or checkpoint else None


def _flat(said: dict[str, Any], prefix: str, depth: int) -> Iterator[tuple[str, float]]:
    for key, value in said.items():
        if isinstance(value, bool):
            continue
        if isinstance(value, int | float):
            yield _name(prefix + key), _number(value)
        elif isinstance(value, dict) and depth < _DEPTH:
            yield from _flat(value, f"{prefix}{key}/", depth + 1)


def _name(key: str) -> str:
    name = key[:NAME_CHARACTERS] or "value"
    # A database takes no NUL and no half of a surrogate pair; a terminal no escape.
    return name if name.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in name)


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def _whole(value: object) -> int | None:
    """A position: a whole number, or the whole part of one (an epoch of 2.5 is inside the third)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if 0 <= value <= MOST else None


@dataclass(frozen=True)
class Standing:
    """Where the script is: the newest values of all its metrics."""

    step: int
    epoch: int
    metrics: dict[str, float]


class Track:
    """One attempt's metrics, from the lines of its first rank to points and progress; `began_s` on any clock.

    A line without a step counts: each of its metrics is one step further than its last point.
    """

    def __init__(self, began_s: float, resume_step: int = 0) -> None:
        self._began_s = began_s
        self._resume_step = resume_step
        self._steps: dict[str, int] = {}
        self._latest: dict[str, float] = {}
        self._points: list[tuple[str, int, int, float]] = []
        self._position: dict[str, int] = {}
        self._step = resume_step
        self._first: tuple[float, float] | None = None
        self.changed = False

    def take(self, sighting: Sighting) -> bool:
        """Take a line in; False when it had a metric too many, which was left out."""
        self._position |= sighting.position
        step, epoch = sighting.position.get("step"), self._position.get("epoch", 0)
        if step is not None:
            self._step = step
        complete = True
        for name, value in sighting.numbers.items():
            if name not in self._steps and len(self._steps) >= SERIES_LIMIT:
                complete = False
                continue
            at = self._steps.get(name, self._resume_step) + 1 if step is None else step
            self._steps[name] = min(at, MOST)
            self._points.append((name, self._steps[name], epoch, value))
            self._latest[name] = value
            if step is None:
                self._step = max(self._step, self._steps[name])
        self.changed = True
        return complete

    @property
    def waiting(self) -> int:
        """How many points wait to be reported."""
        return len(self._points)

    def standing(self) -> Standing:
        """Where it is now; may be asked from another thread."""
        return Standing(self._step, self._position.get("epoch", 0), dict(self._latest))

    def points(self) -> list[tuple[str, int, int, float]]:
        """The points since the last call."""
        points, self._points = self._points, []
        self.changed = False
        return points

    def progress(self, now_s: float) -> dict[str, Any]:
        """How far it is; a total that the script never said is 0, and then so is the fraction."""
        steps, epochs = self._position.get("steps", 0), self._position.get("epochs", 0)
        epoch = self._position.get("epoch", 0)
        fraction = self._step / steps if steps else epoch / epochs if epochs else 0.0
        fraction = min(1.0, fraction)
        return {
            "epoch": epoch,
            "epochs": epochs,
            "step": self._step,
            "steps": steps,
            "fraction": fraction,
            "eta_s": self._eta_s(fraction, now_s),
        }

    def _eta_s(self, fraction: float, now_s: float) -> float | None:
        """From the speed so far; of a run that goes on from a checkpoint, what lies before its first report is none."""
        if self._first is None:
            self._first = (now_s, fraction) if self._resume_step else (self._began_s, 0.0)
        since_s, since = self._first
        done = fraction - since
        return (now_s - since_s) * (1.0 - fraction) / done if done > 0 else None
