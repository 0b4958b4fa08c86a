"""Starts children, restarts one that dies, and ends them in reverse order."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from app.cli.up.child import Child, Program
from app.cli.up.signals import Signals
from app.errors import TrainshedError

T = TypeVar("T")

# Seconds before the first, second, … restart of a child that keeps dying.
BACK_OFF_S: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_LIVED_LONG_S: Final = 30.0
_LOOK_S: Final = 0.02
# A look now and then costs nothing, and does not depend on any signal.
_IDLE_S: Final = 1.0


class ChildFailed(TrainshedError):
    """A child ended before the service was ready."""

    code = "cannot_start"

    def __init__(self, child: Child) -> None:
        self.child = child
        said = child.last_lines()
        detail = f" Its last lines:\n{said}" if said else ""
        super().__init__(f"{child.program.name} {child.outcome} at the start ({child.program.log}).{detail}")


class NotReadyInTime(TrainshedError):
    code = "cannot_start"


class StopAsked(Exception):
    """A stop was asked for while the service was still starting."""


@dataclass
class _Place:
    """A child's place: who sits there now, and when to seat the next one."""

    child: Child
    since: float
    deaths: int = 0
    again_at: float | None = None


class Supervisor:
    """The children in the order of their start. `tell` gets sentences for people, `changed` is called after a start."""

    def __init__(self, signals: Signals, tell: Callable[[str], None], changed: Callable[[], None]) -> None:
        self._signals = signals
        self._tell = tell
        self._changed = changed
        self._places: dict[str, _Place] = {}

    @property
    def children(self) -> Mapping[str, Child]:
        return {name: place.child for name, place in self._places.items()}

    def start(self, program: Program) -> Child:
        child = Child(program)
        self._places[program.name] = _Place(child, time.monotonic())
        self._changed()
        return child

    def replace(self, program: Program) -> None:
        """From its next start on, the child of that name runs this program."""
        self._places[program.name].child.program = program

    def run_once(self, program: Program) -> bytes:
        """Run a program to its end and answer what it printed.

        Raises:
            ChildFailed: it did not exit with 0.
            StopAsked: a stop came first; the program has been ended.
        """
        child = Child(program, keep_output=True)
        try:
            while not child.ended():
                self._signals.wait(_IDLE_S)
                self._check_starting()
        except BaseException:
            child.kill()
            raise
        finally:
            printed = child.output() if child.ended() else b""
        if not child.succeeded:
            raise ChildFailed(child)
        return printed

    def wait_for(self, probe: Callable[[], T | None], what: str, limit_s: float) -> T:
        """Look until `probe` answers something, while the children must live.

        Raises:
            ChildFailed: one did not.
            NotReadyInTime: `what` was not there in time.
            StopAsked: a stop came first.
        """
        until = time.monotonic() + limit_s
        while (found := probe()) is None:
            self._signals.wait(_LOOK_S)
            self._check_starting()
            if time.monotonic() > until:
                raise NotReadyInTime(f"{what} was not ready after {limit_s:g} s.")
        return found

    def run(self) -> None:
        """Keep the children alive until a stop is asked for."""
        while not self._signals.stops_asked:
            now = time.monotonic()
            due = [place for place in self._places.values() if self._is_due(place, now)]
            for place in due:
                self._seat_again(place)
            waits = [place.again_at - now for place in self._places.values() if place.again_at is not None]
            self._signals.wait(min([_IDLE_S, *waits]))

    def stop(self) -> None:
        """End all children, the last started first; a second request for a stop ends the patience with them."""
        patience = max(self._signals.stops_asked, 1)
        for place in reversed(list(self._places.values())):
            child = place.child
            child.terminate()
            until = time.monotonic() + child.program.grace_s
            while not child.ended() and time.monotonic() < until and self._signals.stops_asked <= patience:
                self._signals.wait(min(until - time.monotonic(), _IDLE_S))
            if not child.ended():
                self._tell(f"{child.program.name} did not end by itself and was killed.")
                child.kill()
        self._places.clear()

    def _check_starting(self) -> None:
        if self._signals.stops_asked:
            raise StopAsked
        for place in self._places.values():
            if place.child.ended():
                raise ChildFailed(place.child)

    def _is_due(self, place: _Place, now: float) -> bool:
        """Whether to start this child again now; notices its death on the way."""
        if place.again_at is not None:
            return now >= place.again_at
        if place.child.ended():
            place.deaths = 1 if now - place.since > _LIVED_LONG_S else place.deaths + 1
            delay = BACK_OFF_S[min(place.deaths, len(BACK_OFF_S)) - 1]
            place.again_at = now + delay
            program = place.child.program
            self._tell(f"{program.name} {place.child.outcome}; starting it again in {delay:g} s. Log: {program.log}")
        return False

    def _seat_again(self, place: _Place) -> None:
        place.child = Child(place.child.program)
        place.since = time.monotonic()
        place.again_at = None
        self._changed()
