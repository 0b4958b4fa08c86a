"""Time as a parameter: the wall clock for people, the boot clock for deadlines.

The boot clock goes on while the machine sleeps and is not moved by anybody who sets the time; deadlines of leases are
therefore absolute boot-clock nanoseconds on the host that holds them.
"""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What the domain asks about time; tests pass a clock that stands still."""

    def now(self) -> datetime:
        """The time in UTC, always with a time zone."""
        ...

    def boot_ns(self) -> int:
        """Nanoseconds since boot, time asleep included."""
        ...


class SystemClock:
    def now(self) -> datetime:
        return datetime.now(UTC)

    def boot_ns(self) -> int:
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def to_rfc3339(moment: datetime) -> str:
    """`2026-01-31T12:00:00.000000Z`, always six digits, so that the strings sort as the times do."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
