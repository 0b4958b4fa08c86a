"""Properties that any thinning which keeps extremes has; the oracle is Python's own min and max over all points."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.series.downsample import downsample

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)
ANY = st.floats(width=32)


@st.composite
def series(draw: st.DrawFn, values: st.SearchStrategy[float]) -> tuple[list[int], list[float]]:
    points = draw(st.lists(values, min_size=1, max_size=300))
    gaps = draw(st.lists(st.integers(0, 50), min_size=len(points), max_size=len(points)))
    return [sum(gaps[: i + 1]) for i in range(len(points))], points


class TestDownsample:
    @given(series(ANY), st.integers(2, 60))
    def test_keeps_the_ends_the_order_and_the_bound(
        self, given_series: tuple[list[int], list[float]], most: int
    ) -> None:
        steps, values = given_series
        kept = downsample(steps, values, most)
        assert len(kept) == min(len(values), len(kept)) <= most
        assert kept[0] == 0
        assert kept[-1] == len(values) - 1
        assert kept == sorted(set(kept))

    @given(series(FINITE), st.integers(5, 60))
    def test_keeps_the_extremes_of_the_whole_series(
        self, given_series: tuple[list[int], list[float]], most: int
    ) -> None:
        steps, values = given_series
        kept = [values[i] for i in downsample(steps, values, most)]
        assert min(kept) == min(values)
        assert max(kept) == max(values)

    @given(series(ANY), st.integers(5, 60))
    def test_keeps_the_extremes_and_the_first_that_is_no_number(
        self, given_series: tuple[list[int], list[float]], most: int
    ) -> None:
        steps, values = given_series
        kept = downsample(steps, values, most)
        finite = [value for value in values if math.isfinite(value)]
        if finite:
            kept_finite = [values[i] for i in kept if math.isfinite(values[i])]
            assert min(kept_finite) == min(finite)
            assert max(kept_finite) == max(finite)
        broken = [i for i, value in enumerate(values) if not math.isfinite(value)]
        if broken:
            assert broken[0] in kept

    @given(series(ANY))
    def test_a_short_series_is_left_alone(self, given_series: tuple[list[int], list[float]]) -> None:
        steps, values = given_series
        assert downsample(steps, values, max(2, len(values))) == list(range(len(values)))


class TestKnownSeries:
    def test_one_spike_in_a_hundred_thousand_points_survives(self) -> None:
        values = [1.0] * 100_000
        values[54_321] = 9.0
        assert 54_321 in downsample(range(100_000), values, 1000)

    def test_one_nan_survives(self) -> None:
        values = [1.0] * 1000
        values[700] = math.nan
        assert 700 in downsample(range(1000), values, 20)

    def test_a_saw_keeps_a_low_and_a_high_of_each_part(self) -> None:
        # 0 1 0 1 …: by construction every part has both values, so the picture is still a band from 0 to 1.
        values = [float(i % 2) for i in range(1000)]
        kept = downsample(range(1000), values, 102)
        parts = [{values[i] for i in kept if low <= i < low + 20} for low in range(0, 1000, 20)]
        assert parts == [{0.0, 1.0}] * 50

    def test_parts_are_of_equal_width_in_steps_not_in_points(self) -> None:
        # 98 points crowd into steps 0..97; the point at 5000 stands alone in its part and must not be dropped.
        steps = [*range(98), 5000, 10_000]
        assert 98 in downsample(steps, [float(-abs(50 - i)) for i in range(100)], 10)

    def test_equal_steps_are_one_part(self) -> None:
        kept = downsample([7] * 50, [float(i) for i in range(50)], 10)
        assert kept == [0, 49]

    def test_nothing_but_nan_keeps_the_ends(self) -> None:
        assert downsample(range(9), [math.nan] * 9, 5) == [0, 8]

    def test_below_five_points_only_the_ends_are_certain(self) -> None:
        assert downsample(range(9), [0.0, 5.0, math.nan, *[0.0] * 6], 3) == [0, 8]

    def test_an_empty_series_is_empty(self) -> None:
        assert downsample([], [], 10) == []


class TestRefusals:
    def test_one_point_is_no_series(self) -> None:
        with pytest.raises(ValueError, match="max_points is 1"):
            downsample([1], [1.0], 1)

    def test_lengths_must_agree(self) -> None:
        with pytest.raises(ValueError, match="steps has 2 entries and values has 1"):
            downsample([1, 2], [1.0], 5)
