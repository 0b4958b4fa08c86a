"""What is made of an attempt's telemetry: its sums, a word about idle cards, a stop where that was asked for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from app.jobs.attempts import Measured
from app.usage.verdicts import IDLE_BELOW, WorkVerdict, sentence
from workers.inventory.telemetry import Sample
from workers.spool import Spool
from workers.tally import Tally

_MINUTE_S: Final = 60.0


class WorkMeter:
    """Of one attempt; `on_idle` is called when all its cards were idle for `stop_when_idle_s`.

    `idle_after_s`: after how long a notice says that they are idle, once; 0 is never.
    """

    def __init__(
        self,
        cards: Sequence[str],
        spool: Spool,
        *,
        idle_after_s: float,
        stop_when_idle_s: float | None,
        on_idle: Callable[[], None],
    ) -> None:
        self._cards = tuple(cards)
        self._spool = spool
        self._idle_after_s = idle_after_s
        self._stop_when_idle_s = stop_when_idle_s
        self._on_idle = on_idle
        self._tally = Tally()
        self._noted = False

    def add(self, at_ns: int, values: Sample, idle_s: Mapping[str, float]) -> None:
        """Take a sample, and for how long each card has been idle."""
        self._tally.add(at_ns, values)
        # The one that has worked last: a job that uses one card of two is not idle.
        idle_for_s = min((idle_s.get(card, 0.0) for card in self._cards), default=0.0)
        if self._idle_after_s and idle_for_s >= self._idle_after_s and not self._noted:
            self._noted = True
            self._spool.notice("idle", self._idle_notice(idle_for_s))
        if self._stop_when_idle_s is not None and idle_for_s >= self._stop_when_idle_s:
            self._on_idle()

    def measured(self) -> Measured | None:
        return self._tally.measured()

    def conclude(self) -> None:
        """Say the verdict in the journal; nothing when there is none, as with CPU devices and short runs."""
        measured = self.measured()
        if measured is not None and measured.verdict != WorkVerdict.UNKNOWN:
            text = sentence(WorkVerdict(measured.verdict), measured.utilization)
            self._spool.notice("verdict", text)

    def _idle_notice(self, idle_for_s: float) -> str:
        plan = (
            "nothing stops it (`stop_when_idle_s` in the spec would)"
            if self._stop_when_idle_s is None
            else f"it is stopped after {self._stop_when_idle_s / _MINUTE_S:.0f} minutes of that"
        )
        return (
            f"Its cards have been busy less than {IDLE_BELOW * 100:.0f} % of the time for "
            f"{idle_for_s / _MINUTE_S:.0f} minutes; {plan}."
        )
