"""How the cards of an attempt or a hold have worked, summed up from samples. Pure: the time is a parameter."""

from dataclasses import dataclass, field
from typing import Final

from app.jobs.attempts import Measured
from app.usage.verdicts import judge
from workers.inventory.telemetry import ENERGY_COUNTER, Sample

_SECOND_NS: Final = 1_000_000_000


@dataclass
class _Card:
    """Sums of one card: joules, busy seconds, and the seconds over which busyness was known."""

    at_ns: int | None = None
    values: dict[str, float] = field(default_factory=dict)
    energy_j: float | None = None
    busy_s: float = 0.0
    known_s: float = 0.0

    def add(self, at_ns: int, values: dict[str, float]) -> None:
        if self.at_ns is not None and at_ns > self.at_ns:
            span_s = (at_ns - self.at_ns) / _SECOND_NS
            joules = _energy_j(self.values, values, span_s)
            if joules is not None:
                self.energy_j = (self.energy_j or 0.0) + joules
            if "utilization" in values:
                # What a card says of itself is about the time before it was asked.
                self.busy_s += values["utilization"] * span_s
                self.known_s += span_s
        self.at_ns, self.values = at_ns, values


def _energy_j(before: dict[str, float], after: dict[str, float], span_s: float) -> float | None:
    """Joules between two samples: by the card's own counter, else the mean of both powers times the time.

    The counter starts anew when the driver is loaded; a step back says nothing.
    """
    if ENERGY_COUNTER in before and after.get(ENERGY_COUNTER, -1.0) >= before[ENERGY_COUNTER]:
        return after[ENERGY_COUNTER] - before[ENERGY_COUNTER]
    if "power_w" in before and "power_w" in after:
        return (before["power_w"] + after["power_w"]) / 2 * span_s
    return None


class Tally:
    """Takes samples in the order of time. What was before the first one and after the last one is not in the sums."""

    def __init__(self) -> None:
        self._cards: dict[str, _Card] = {}

    def add(self, at_ns: int, values: Sample) -> None:
        for card, told in values.items():
            self._cards.setdefault(card, _Card()).add(at_ns, told)

    @property
    def energy_j(self) -> float | None:
        """Joules of all cards together; None when none could tell."""
        known = [card.energy_j for card in self._cards.values() if card.energy_j is not None]
        return sum(known) if known else None

    @property
    def utilization(self) -> float | None:
        """The mean over time and cards, 0 to 1; None when none could tell."""
        known_s = sum(card.known_s for card in self._cards.values())
        return sum(card.busy_s for card in self._cards.values()) / known_s if known_s else None

    def measured(self) -> Measured | None:
        """What is to be kept of it; None before there is anything."""
        longest_s = max((card.known_s for card in self._cards.values()), default=0.0)
        energy_j, utilization = self.energy_j, self.utilization
        if energy_j is None and utilization is None:
            return None
        return Measured(energy_j, utilization, judge(utilization, longest_s).value)
