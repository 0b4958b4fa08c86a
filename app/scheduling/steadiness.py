"""Notices that the database's clock was set, by comparing it with this machine's boot clock, which nobody sets."""

from datetime import datetime
from typing import Final

SLACK_S: Final = 5.0


class Steadiness:
    """Whether leases may be judged by the database's clock now.

    A clock that was set forward lets all leases end at once, although every holder is alive. So for `pause_s` after
    a jump, in which each holder beats several times, nothing is to be taken from anybody.
    """

    def __init__(self, pause_s: float) -> None:
        self._pause_ns = round(pause_s * 1e9)
        self._offset_s: float | None = None
        self._until_ns = 0

    def look(self, wall: datetime, boot_ns: int) -> float:
        """Compare the clocks; the seconds by which the wall clock jumped since the last look, 0.0 within the slack.

        Small steps do not add up: each look is compared with the one before it.
        """
        offset_s = wall.timestamp() - boot_ns / 1e9
        jump_s = 0.0 if self._offset_s is None else offset_s - self._offset_s
        self._offset_s = offset_s
        if abs(jump_s) <= SLACK_S:
            return 0.0
        self._until_ns = boot_ns + self._pause_ns
        return jump_s

    def is_steady(self, boot_ns: int) -> bool:
        return boot_ns >= self._until_ns
