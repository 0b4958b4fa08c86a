"""Values as people read them; the expected texts are written by hand."""

from datetime import UTC, datetime

import pytest

from app.cli.figures import age, clock_time, duration, harmless, moment, number, on_host, size


class TestFigures:
    @pytest.mark.parametrize(
        ("seconds", "text"),
        [(0, "0.0 s"), (4.24, "4.2 s"), (59.4, "59 s"), (65, "1 min 05 s"), (3600, "1 h 00 min"), (7384, "2 h 03 min")],
    )
    def test_durations(self, seconds: float, text: str) -> None:
        assert duration(seconds) == text

    @pytest.mark.parametrize(
        ("count", "text"),
        [(0, "0 B"), (980, "980 B"), (1024, "1.0 KiB"), (1610612736, "1.5 GiB"), (2**50, "1024.0 TiB")],
    )
    def test_sizes(self, count: int, text: str) -> None:
        assert size(count) == text

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            (0.97312, "0.9731"),
            (1.234e-5, "1.234e-05"),
            (3, "3"),
            (12345.6, "12\u202f346"),
            (-20000, "-20\u202f000"),
            (2007, "2007"),
            (2007.4, "2007"),
            ("NaN", "NaN"),
            ("-Infinity", "-Infinity"),
            (None, "–"),
        ],
    )
    def test_numbers(self, value: object, text: str) -> None:
        assert number(value) == text

    def test_what_is_not_there_is_a_dash(self) -> None:
        assert [duration(None), size(None), age(None), clock_time("no time"), moment(None)] == ["–"] * 5

    def test_a_moment_is_told_to_the_second_in_utc(self) -> None:
        assert moment("2026-01-31T12:00:05.999999Z") == "2026-01-31T12:00:05Z"
        assert moment("2026-01-31T12:00:05+01:00") == "2026-01-31T11:00:05Z"

    def test_a_device_of_a_host_is_told_without_the_host(self) -> None:
        assert [on_host("cpu-1@3d12"), on_host("GPU-1"), on_host("cpu\x1b")] == ["cpu-1", "GPU-1", "cpu\ufffd"]

    @pytest.mark.parametrize(
        ("then", "text"),
        [("31T12:00:00", "5 s"), ("31T11:57:06", "2 min"), ("31T09:00:06", "2 h"), ("28T12:00:00", "3 d")],
    )
    def test_an_age_is_told_in_its_largest_unit(self, then: str, text: str) -> None:
        now = datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC)
        assert age(f"2026-01-{then}.000000Z", now) == text

    def test_an_age_is_never_negative(self) -> None:
        now = datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC)
        assert age("2026-01-31T12:00:09.000000Z", now) == "0 s"


class TestHarmless:
    def test_what_could_rewrite_the_terminal_is_replaced(self) -> None:
        # ESC starts a terminal's commands; U+202E turns the direction of writing.
        assert harmless("a\x1b[2Jb\u202ec\rd\ne") == "a\ufffd[2Jb\ufffdc\ufffdd\ufffde"

    def test_letters_marks_and_tabs_stay(self) -> None:
        assert harmless("Ærø\t[red] 100 % ✓ 日本") == "Ærø\t[red] 100 % ✓ 日本"
