"""Sums of samples whose integrals are known in closed form."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.inventory.telemetry import ENERGY_COUNTER
from workers.tally import Tally

SECOND_NS = 1_000_000_000


def fed(*samples: tuple[float, dict[str, float]], card: str = "GPU-a") -> Tally:
    """Samples of one card, each with its second."""
    tally = Tally()
    for second, values in samples:
        tally.add(round(second * SECOND_NS), {card: values})
    return tally


class TestEnergy:
    def test_constant_power_is_power_times_time(self) -> None:
        assert fed((0, {"power_w": 300}), (7, {"power_w": 300}), (20, {"power_w": 300})).energy_j == 300 * 20

    def test_a_ramp_is_half_of_its_box(self) -> None:
        # The integral of 10 t from 0 to 30 s is 5 · 30² = 4500 J, which the trapezoid rule gives exactly.
        ramp = [(float(t), {"power_w": 10.0 * t}) for t in range(31)]
        assert fed(*ramp).energy_j == pytest.approx(4500)
        assert fed(*ramp[::10]).energy_j == pytest.approx(4500), "however often it is asked"

    def test_a_sine_comes_close(self) -> None:
        # The integral of 100 + 50 sin t over a period is 100 · 2π.
        wave = [(t, {"power_w": 100 + 50 * math.sin(t)}) for t in (2 * math.pi * n / 1000 for n in range(1001))]
        assert fed(*wave).energy_j == pytest.approx(200 * math.pi, rel=1e-6)

    def test_the_cards_own_counter_is_believed_rather_than_its_power(self) -> None:
        samples = [(t, {"power_w": 1.0, ENERGY_COUNTER: 7000.0 + 250.0 * t}) for t in (0.0, 10.0, 40.0)]
        assert fed(*samples).energy_j == 250.0 * 40

    def test_a_counter_that_begins_anew_is_bridged_by_power(self) -> None:
        samples = [
            (0.0, {"power_w": 100.0, ENERGY_COUNTER: 9000.0}),
            (10.0, {"power_w": 100.0, ENERGY_COUNTER: 5.0}),
            (20.0, {"power_w": 100.0, ENERGY_COUNTER: 1205.0}),
        ]
        assert fed(*samples).energy_j == 100 * 10 + 1200

    def test_one_sample_is_no_span(self) -> None:
        assert fed((0, {"power_w": 300})).energy_j is None
        assert fed((0, {"power_w": 300}), (0, {"power_w": 300})).energy_j is None

    def test_cards_are_added_up(self) -> None:
        tally = Tally()
        for second in (0, 10):
            tally.add(second * SECOND_NS, {"GPU-a": {"power_w": 100}, "GPU-b": {"power_w": 300}})
        assert tally.energy_j == 4000

    def test_a_card_that_cannot_tell_power_has_no_energy(self) -> None:
        assert fed((0, {"utilization": 1.0}), (9, {"utilization": 1.0})).energy_j is None


class TestUtilization:
    def test_the_mean_is_over_time_not_over_samples(self) -> None:
        # Busy 0.9 for 10 s and 0.1 for 30 s: (9 + 3) / 40.
        found = fed((0, {"utilization": 0.0}), (10, {"utilization": 0.9}), (40, {"utilization": 0.1}))
        assert found.utilization == pytest.approx(0.3)

    def test_and_over_cards(self) -> None:
        tally = Tally()
        for second in (0, 10):
            tally.add(second * SECOND_NS, {"GPU-a": {"utilization": 1.0}, "GPU-b": {"utilization": 0.5}})
        assert tally.utilization == pytest.approx(0.75)

    @given(st.lists(st.floats(0, 1), min_size=2, max_size=20))
    def test_it_stays_between_the_least_and_the_most(self, values: list[float]) -> None:
        found = fed(*[(float(n), {"utilization": value}) for n, value in enumerate(values)]).utilization
        assert found is not None
        assert min(values[1:]) - 1e-9 <= found <= max(values[1:]) + 1e-9


class TestMeasured:
    def test_nothing_before_there_is_a_span(self) -> None:
        assert Tally().measured() is None
        assert fed((0, {"utilization": 1.0, "power_w": 1.0})).measured() is None

    @pytest.mark.parametrize(
        ("seconds", "busy", "verdict"),
        [
            (29, 0.9, "unknown"),  # docs/holds.md: nothing is said before 30 s
            (30, 0.9, "compute_bound"),
            (30, 0.5, "input_bound"),
            (30, 0.01, "idle"),
        ],
    )
    def test_the_verdict_goes_by_what_was_measured(self, seconds: float, busy: float, verdict: str) -> None:
        found = fed((0, {"utilization": busy}), (seconds, {"utilization": busy})).measured()
        assert found is not None
        assert (found.energy_j, found.verdict) == (None, verdict)
        assert found.utilization == pytest.approx(busy)

    def test_energy_alone_is_kept_without_a_verdict(self) -> None:
        found = fed((0, {"power_w": 10}), (60, {"power_w": 10})).measured()
        assert found is not None
        assert (found.energy_j, found.utilization, found.verdict) == (600, None, "unknown")
