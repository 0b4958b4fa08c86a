"""How a trainer is stopped: a message, then TERM, then KILL, and why. Pure: the time is a parameter."""

import signal
from enum import StrEnum
from typing import Final

from app.errors import Cause

SECOND_NS: Final = 1_000_000_000
TERM_AFTER_S: Final = 1.0
"""From the message to TERM. A trainer that trains sees the message at its next safe point, at least once a second;
one that still imports its framework sees nothing, and TERM ends it."""


class StopReason(StrEnum):
    """Why an attempt is stopped; a stronger reason replaces a weaker one and never the other way round."""

    DRAIN = "drain"
    PREEMPT = "preempt"
    PAUSE = "pause"
    IDLE = "idle"
    DEVICE_GONE = "device_gone"
    TIMED_OUT = "timed_out"
    CANCEL = "cancel"
    FENCED = "fenced"

    @property
    def strength(self) -> int:
        return list(StopReason).index(self)

    @property
    def cause(self) -> Cause | None:
        """The cause of an attempt that left for this reason; None when the job's own stop request says it all."""
        return _CAUSES.get(self)


_CAUSES: Final = {
    StopReason.DRAIN: Cause.DRAINED,
    StopReason.PREEMPT: Cause.PREEMPTED,
    StopReason.IDLE: Cause.IDLE,
    StopReason.DEVICE_GONE: Cause.DEVICE_UNAVAILABLE,
    StopReason.TIMED_OUT: Cause.TIMED_OUT,
    StopReason.FENCED: Cause.WORKER_LOST,
}


def stronger(present: StopReason | None, asked: StopReason) -> StopReason:
    return asked if present is None or asked.strength > present.strength else present


class StopSteps:
    """The steps of one stop, each taken once: MESSAGE at once, SIGTERM after `TERM_AFTER_S`, SIGKILL after the grace.

    A fenced attempt is killed at once: its devices may be somebody else's before its next safe point.
    """

    def __init__(self, grace_s: float) -> None:
        self._grace_ns = round(grace_s * SECOND_NS)
        self._due: list[tuple[int, signal.Signals | None]] = []
        self.reason: StopReason | None = None
        self.killed = False

    def ask(self, reason: StopReason, now_ns: int) -> None:
        """Begin the stop, or only strengthen its reason when it is under way."""
        began = self.reason is not None
        self.reason = stronger(self.reason, reason)
        if reason is StopReason.FENCED:
            self._due = [] if self.killed else [(now_ns, signal.SIGKILL)]
        elif not began:
            term_ns = min(round(TERM_AFTER_S * SECOND_NS), self._grace_ns // 2)
            self._due = [
                (now_ns, None),
                (now_ns + term_ns, signal.SIGTERM),
                (now_ns + self._grace_ns, signal.SIGKILL),
            ]

    def take(self, now_ns: int) -> list[signal.Signals | None]:
        """The steps that are due now; None stands for the message."""
        due = [step for at, step in self._due if at <= now_ns]
        self._due = [(at, step) for at, step in self._due if at > now_ns]
        self.killed = self.killed or signal.SIGKILL in due
        return due

    def next_ns(self) -> int | None:
        return min((at for at, _ in self._due), default=None)
