"""Tells each running attempt how its own cards are doing, from a thread that nothing waits for."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import structlog

from workers.inventory.telemetry import Sample

log = structlog.get_logger("worker")

Sampler = Callable[[Sequence[str]], Sample]


class Attempt(Protocol):
    """What is asked of an attempt; both may be called at any time, also after its end."""

    def cards(self) -> Sequence[str]:
        """Ids of the real cards that its trainer computes on now; none before it is up and after it is gone."""

    def tell_cards(self, values: Sample) -> None: ...


class Telemetry:
    """Looks every `interval_s` seconds; 0 is never.

    A driver may block for good: then there is no more telemetry, and neither the heartbeat nor an attempt notices.
    """

    def __init__(self, sampler: Sampler, interval_s: float, attempts: Callable[[], Iterable[Attempt]]) -> None:
        self._sampler = sampler
        self._interval_s = interval_s
        self._attempts = attempts
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="telemetry", daemon=True)

    def start(self) -> None:
        if self._interval_s:
            self._thread.start()

    def stop(self) -> None:
        """Look no more; does not wait for the driver. Harmless twice, and before a start."""
        self._stop.set()

    def look(self) -> None:
        """Ask once for all cards in use, and tell each attempt about its own."""
        held = [(attempt, cards) for attempt in self._attempts() if (cards := attempt.cards())]
        if not held:
            return  # the driver is left alone
        found = self._sampler([card for _, cards in held for card in cards])
        for attempt, cards in held:
            own = {card: found[card] for card in cards if card in found}
            # Asking may have taken long: what was released meanwhile may be another job's by now.
            if own and attempt.cards() == cards:
                attempt.tell_cards(own)

    def _run(self) -> None:
        while not self._stop.wait(self._interval_s):
            try:
                self.look()
            except Exception:
                log.exception("telemetry_failed")
