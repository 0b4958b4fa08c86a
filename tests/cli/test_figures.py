"""Values as people read them; the expected texts are written by hand."""

from datetime import UTC, datetime

import pytest

from app.cli.figures import age, clock_time, duration, harmless, number, size


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
            (-2000, "-2\u202f000"),
            ("NaN", "NaN"),
            ("-Infinity", "-Infinity"),
            (None, "–"),
        ],
    )
    def test_numbers(self, value: object, text: str) -> None:
        assert number(value) == text

    def test_what_is_not_there_is_a_dash(self) -> None:
        assert [duration(None), size(None), age(None), clock_time("no time")] == ["–"] * 4

    def test_an_age_is_never_negative(self) -> None:
        now = datetime(2026, 1, 31, 12, 0, 5, tzinfo=UTC)
        assert age("2026-01-31T12:00:00.000000Z", now) == "5.0 s"
        assert age("2026-01-31T12:00:09.000000Z", now) == "0.0 s"


class TestHarmless:
    def test_what_could_rewrite_the_terminal_is_replaced(self) -> None:
        # ESC starts a terminal's commands; U+202E turns the direction of writing.
        assert harmless("a\x1b[2Jb\u202ec\rd\ne") == "a\ufffd[2Jb\ufffdc\ufffdd\ufffde"

    def test_letters_marks_and_tabs_stay(self) -> None:
        assert harmless("Ærø\t[red] 100 % ✓ 日本") == "Ærø\t[red] 100 % ✓ 日本"
