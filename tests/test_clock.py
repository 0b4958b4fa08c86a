import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.clock import Clock, SystemClock, to_rfc3339
from tests.fakes import FakeClock


@pytest.fixture(params=[SystemClock, FakeClock])
def any_clock(request: pytest.FixtureRequest) -> Clock:
    made: Clock = request.param()
    return made


class TestEveryClock:
    """The fake passes what the real one passes."""

    def test_now_has_the_time_zone_utc(self, any_clock: Clock) -> None:
        assert any_clock.now().utcoffset() == timedelta(0)

    def test_neither_hand_runs_backwards(self, any_clock: Clock) -> None:
        times = [any_clock.now() for _ in range(100)]
        boots = [any_clock.boot_ns() for _ in range(100)]
        assert times == sorted(times)
        assert boots == sorted(boots)
        assert isinstance(boots[0], int)


class TestSystemClock:
    def test_reads_the_clocks_of_the_system(self) -> None:
        clock = SystemClock()
        before, boot_before = time.time(), time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        now, boot = clock.now().timestamp(), clock.boot_ns()
        assert before - 1e-3 <= now <= time.time() + 1e-3
        assert boot_before <= boot <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class TestToRfc3339:
    @pytest.mark.parametrize(
        ("moment", "text"),
        [
            (datetime(2026, 1, 31, 12, tzinfo=UTC), "2026-01-31T12:00:00.000000Z"),
            (datetime(2026, 1, 31, 12, 0, 0, 7, tzinfo=UTC), "2026-01-31T12:00:00.000007Z"),
            # RFC 3339 section 5.8: 1996-12-19T16:39:57-08:00 is the same moment as 1996-12-20T00:39:57Z.
            (datetime(1996, 12, 19, 16, 39, 57, tzinfo=timezone(-timedelta(hours=8))), "1996-12-20T00:39:57.000000Z"),
        ],
    )
    def test_known_moments(self, moment: datetime, text: str) -> None:
        assert to_rfc3339(moment) == text

    @given(st.lists(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.just(UTC)), min_size=2))  # noqa: DTZ001
    def test_the_strings_sort_as_the_times_do(self, moments: list[datetime]) -> None:
        assert [to_rfc3339(moment) for moment in sorted(moments)] == sorted(map(to_rfc3339, moments))

    @given(st.datetimes(min_value=datetime(1970, 1, 1), timezones=st.timezones()))  # noqa: DTZ001
    def test_reading_it_back_gives_the_same_moment(self, moment: datetime) -> None:
        assert datetime.fromisoformat(to_rfc3339(moment)) == moment.astimezone(UTC)
