"""Since when cards that somebody has do nothing. Pure: the time is a parameter."""

from collections.abc import Mapping
from typing import Final

from app.usage.verdicts import IDLE_BELOW
from workers.inventory.telemetry import Sample

_SECOND_NS: Final = 1_000_000_000


class Idleness:
    """Remembers per card who has it and since when it is idle; a new holder begins anew."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[str, int]] = {}

    def look(self, at_ns: int, holders: Mapping[str, str], values: Sample) -> dict[str, float]:
        """For how many seconds each card that is held and can tell has been idle; 0 when it works.

        `holders` says who has a card. A card that nobody has, or that cannot tell how busy it is, is not in the answer
        and is forgotten.
        """
        found: dict[str, float] = {}
        kept: dict[str, tuple[str, int]] = {}
        for card, holder in holders.items():
            busy = values.get(card, {}).get("utilization")
            if busy is None:
                continue
            known = self._since.get(card)
            idle_before = known is not None and known[0] == holder and busy < IDLE_BELOW
            since_ns = known[1] if known is not None and idle_before else at_ns
            kept[card] = (holder, since_ns)
            found[card] = (at_ns - since_ns) / _SECOND_NS
        self._since = kept
        return found
