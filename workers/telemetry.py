"""Asks the host's cards how they are, from a thread that nothing waits for, and tells those who have them."""

import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import structlog

from app.clock import Clock, SystemClock
from app.holds.repository import HeldDevices
from workers.idleness import Idleness
from workers.inventory.telemetry import Sample, Sampler, shown
from workers.tally import Tally

log = structlog.get_logger("worker")

_NOTICE_S: Final = 1.0
"""How soon a new attempt is noticed, so that what its cards do at first is not lost until the next look."""


class Attempt(Protocol):
    """What is asked of an attempt; all may be asked at any time, also after its end."""

    @property
    def key(self) -> tuple[str, int]: ...

    def cards(self) -> Sequence[str]:
        """Ids of the cards that its trainer computes on now; none before it is up and after it is gone."""

    def tell_cards(self, at_ns: int, values: Sample, idle_s: Mapping[str, float]) -> None:
        """What its cards said at a time of the boot clock, and for how long each has been idle."""


@dataclass(frozen=True)
class Look:
    """What one look has found: readings by card, idle seconds of held cards, and joules that holds took since."""

    readings: Sample
    idle_s: Mapping[str, float] = field(default_factory=dict)
    hold_energy_j: Mapping[str, float] = field(default_factory=dict)


class Board(Protocol):
    """Where the host's devices are written up for all to see."""

    def cards(self) -> Sequence[str]:
        """Ids of all cards that the host has now."""

    def holds(self) -> Sequence[HeldDevices]:
        """Who holds devices of this host besides its attempts."""

    def write(self, look: Look) -> bool:
        """Keep it; False when it could not be written."""


class NoBoard:
    """For a host whose devices nobody looks at, as in tests of a single attempt."""

    def cards(self) -> Sequence[str]:
        return ()

    def holds(self) -> Sequence[HeldDevices]:
        return ()

    def write(self, look: Look) -> bool:
        """Forget it."""
        return not look.hold_energy_j


class Telemetry:
    """Looks every `interval_s` seconds, and when an attempt begins to use cards; 0 is never.

    A driver may block for good: then there is no more telemetry, and neither the heartbeat nor an attempt notices.
    """

    def __init__(
        self,
        sampler: Sampler,
        interval_s: float,
        attempts: Callable[[], Iterable[Attempt]],
        board: Board | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._sampler = sampler
        self._interval_s = interval_s
        self._attempts = attempts
        self._board = board or NoBoard()
        self._clock = clock or SystemClock()
        self._idleness = Idleness()
        self._hold_tallies: dict[str, Tally] = {}
        self._hold_written_j: dict[str, float] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        if self._interval_s:
            self._thread.start()

    def stop(self) -> None:
        """Look no more; does not wait for the driver. Harmless twice, and before a start."""
        self._stop.set()

    def look(self) -> None:
        """Ask once for all cards, tell each attempt about its own, and write all up."""
        used = [(attempt, cards) for attempt in self._attempts() if (cards := attempt.cards())]
        holds = self._board.holds()
        holders = {card: str(attempt.key) for attempt, cards in used for card in cards}
        holders |= {card: hold.hold_id for hold in holds for card in hold.cards}
        asked = list(dict.fromkeys([*holders, *self._board.cards()]))
        if not asked:
            return  # the driver is left alone
        found = self._sampler(asked)
        at_ns = self._clock.boot_ns()
        idle_s = self._idleness.look(at_ns, holders, found)
        for attempt, cards in used:
            own = {card: found[card] for card in cards if card in found}
            # Asking may have taken long: what was released meanwhile may be another job's by now.
            if own and attempt.cards() == cards:
                attempt.tell_cards(at_ns, own, {card: idle_s[card] for card in cards if card in idle_s})
        energies = self._hold_energies(at_ns, holds, found)
        grown = {hold: joules - self._hold_written_j.get(hold, 0.0) for hold, joules in energies.items()}
        if self._board.write(Look(shown(found), idle_s, grown)):
            self._hold_written_j = energies

    def _hold_energies(self, at_ns: int, holds: Sequence[HeldDevices], found: Sample) -> dict[str, float]:
        """Joules of each hold since this worker first saw it; holds that are over are forgotten."""
        self._hold_tallies = {hold.hold_id: self._hold_tallies.get(hold.hold_id, Tally()) for hold in holds}
        for hold in holds:
            self._hold_tallies[hold.hold_id].add(at_ns, {card: found[card] for card in hold.cards if card in found})
        return {hold: joules for hold, tally in self._hold_tallies.items() if (joules := tally.energy_j) is not None}

    def _run(self) -> None:
        seen: object = None
        due = 0.0
        while not self._stop.wait(min(self._interval_s, _NOTICE_S)):
            try:
                in_use = {(attempt.key, tuple(attempt.cards())) for attempt in self._attempts()}
                if time.monotonic() < due and in_use == seen:
                    continue
                seen, due = in_use, time.monotonic() + self._interval_s
                self.look()
            except Exception:
                log.exception("telemetry_failed")
