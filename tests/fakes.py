"""All fakes of the test suite; each passes the conformance suite of what it stands for."""

from datetime import UTC, datetime, timedelta

# A time that no test should take for the present.
START = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


class FakeClock:
    """A clock that stands still until a test moves it; both of its hands move together."""

    def __init__(self, now: datetime = START, boot_ns: int = 1_000_000_000_000) -> None:
        self._now = now
        self._boot_ns = boot_ns

    def now(self) -> datetime:
        return self._now

    def boot_ns(self) -> int:
        return self._boot_ns

    def advance(self, seconds: float) -> datetime:
        """Move on, and return the new time."""
        self._now += timedelta(seconds=seconds)
        self._boot_ns += round(seconds * 1_000_000_000)
        return self._now

    def set_wall(self, seconds: float) -> None:
        """Set the wall clock forward or back, as somebody might; the boot clock does not follow."""
        self._now += timedelta(seconds=seconds)
