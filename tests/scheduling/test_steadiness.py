"""Jumps of the database's clock, with both clocks in the test's hand."""

from datetime import timedelta

import pytest

from app.scheduling.steadiness import SLACK_S, Steadiness
from tests.fakes import START

SECOND_NS = 1_000_000_000


class TestSteadiness:
    def test_clocks_that_go_together_are_steady(self) -> None:
        steadiness = Steadiness(60)
        for second in range(0, 100, 3):
            assert steadiness.look(START + timedelta(seconds=second), second * SECOND_NS) == 0.0
            assert steadiness.is_steady(second * SECOND_NS)

    @pytest.mark.parametrize("jump_s", [300.0, -3600.0])
    def test_a_jump_is_told_and_pauses(self, jump_s: float) -> None:
        steadiness = Steadiness(60)
        steadiness.look(START, 0)
        assert steadiness.look(START + timedelta(seconds=3 + jump_s), 3 * SECOND_NS) == pytest.approx(jump_s)
        assert not steadiness.is_steady(62 * SECOND_NS)
        assert steadiness.is_steady(63 * SECOND_NS)
        assert steadiness.look(START + timedelta(seconds=6 + jump_s), 6 * SECOND_NS) == 0.0, "once"

    def test_slow_drift_never_adds_up_to_a_jump(self) -> None:
        steadiness = Steadiness(60)
        for look in range(100):
            drift = timedelta(seconds=look * SLACK_S / 2)
            assert steadiness.look(START + drift, 0) == 0.0

    def test_a_machine_that_slept_has_not_jumped(self) -> None:
        # CLOCK_BOOTTIME goes on during a suspend (clock_gettime(2)), as the wall clock does.
        steadiness = Steadiness(60)
        steadiness.look(START, 0)
        assert steadiness.look(START + timedelta(hours=8), 8 * 3600 * SECOND_NS) == 0.0
