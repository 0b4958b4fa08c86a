"""Times and sizes as people type them."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.cli.errors import UsageProblem
from app.cli.quantities import moment_of, seconds, size_bytes
from tests.fakes import START


class TestSeconds:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [("90s", 90), ("30m", 1800), ("30min", 1800), ("4h", 14_400), ("2d", 172_800), ("1h30m", 5400), ("0.5h", 1800)],
    )
    def test_reads_units_and_sums(self, text: str, expected: float) -> None:
        assert seconds(text) == expected

    @pytest.mark.parametrize("text", ["", "4", "4 h", "h", "-1h", "4x", "1h30", "0s", "1hm", "9" * 400 + "h"])
    def test_refuses_all_else(self, text: str) -> None:
        with pytest.raises(UsageProblem, match="for example 30m"):
            seconds(text)

    @given(st.integers(1, 10_000), st.integers(1, 10_000))
    def test_parts_add_up(self, hours: int, minutes: int) -> None:
        assert seconds(f"{hours}h{minutes}m") == 3600 * hours + 60 * minutes


class TestSize:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("40GiB", 40 * 2**30),
            ("40gib", 40 * 2**30),
            ("40G", 40 * 2**30),
            ("40GB", 40 * 10**9),
            ("1.5 TiB", 3 * 2**39),
            ("80000000000", 80_000_000_000),
            ("12B", 12),
        ],
    )
    def test_reads_binary_and_decimal_prefixes(self, text: str, expected: int) -> None:
        # IEC 80000-13: Gi is 2**30, and G is 10**9 where the B is written out.
        assert size_bytes(text) == expected

    @pytest.mark.parametrize("text", ["", "GiB", "40 XB", "-1G", "40GiBB", "9" * 400 + "T"])
    def test_refuses_all_else(self, text: str) -> None:
        with pytest.raises(UsageProblem, match="for example 40GiB"):
            size_bytes(text)


class TestMoment:
    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("7d", datetime(2026, 1, 24, 12, tzinfo=UTC)),
            ("1h30m", datetime(2026, 1, 31, 10, 30, tzinfo=UTC)),
            ("2026-01-02", datetime(2026, 1, 2, tzinfo=UTC)),
            ("2026-01-02T03:00:00+02:00", datetime(2026, 1, 2, 1, tzinfo=UTC)),
        ],
    )
    def test_reads_ages_dates_and_times(self, text: str, expected: datetime) -> None:
        assert moment_of(text, START) == expected

    @pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "9999999d", "0001-01-01T00:00:00+05:00"])
    def test_refuses_all_else(self, text: str) -> None:
        with pytest.raises(UsageProblem, match="for example 7d"):
            moment_of(text)
