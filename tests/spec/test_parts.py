"""How many rows each part of a split gets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spec import part_sizes
from app.spec.data import EffectiveSplit, Split
from app.spec.parts import stratified_sizes
from workers.data.split import divide


class TestPartSizes:
    @pytest.mark.parametrize(
        ("rows", "validation", "test", "expected"),
        [
            (100, 0.2, 0.1, (70, 20, 10)),
            (1797, 0.2, 0.0, (1438, 359, 0)),  # 359.4 is nearest to 359
            (10, 0.25, 0.0, (7, 3, 0)),  # 2.5 goes up
            (100, 0.0, 0.0, (100, 0, 0)),
            (3, 0.1, 0.1, (1, 1, 1)),  # a share above 0 is at least one row
            (2, 0.1, 0.1, (0, 1, 1)),  # too few: the caller refuses
        ],
    )
    def test_shares_are_rounded_to_the_nearest_row(
        self, rows: int, validation: float, test: float, expected: tuple[int, int, int]
    ) -> None:
        assert part_sizes(rows, Split(validation=validation, test=test)) == expected

    @given(st.integers(1, 10**6), st.floats(0, 0.5), st.floats(0, 0.4))
    def test_parts_add_up_and_are_near_their_share(self, rows: int, validation: float, test: float) -> None:
        parts = part_sizes(rows, Split(validation=validation, test=test))
        assert sum(parts) == rows
        assert abs(parts.validation - rows * validation) <= max(0.5, 1 - rows * validation)
        assert abs(parts.test - rows * test) <= max(0.5, 1 - rows * test)


class TestStratifiedSizes:
    @given(
        st.lists(st.integers(1, 6), min_size=2, max_size=12),
        st.sampled_from([(0.2, 0.0), (0.5, 0.2), (0.1, 0.4), (0.0, 0.3)]),
    )
    def test_they_are_what_a_trainer_divides_into(self, members: list[int], shares: tuple[float, float]) -> None:
        split = EffectiveSplit(method="stratified", validation=shares[0], test=shares[1], seed=0)
        rows, classes = sum(members), np.repeat(np.arange(len(members)), members)
        expected = stratified_sizes(rows, len(members), split)
        if expected.train >= 1:
            division = divide(rows, classes, split)
            assert tuple(map(len, (division.train, division.validation, division.test))) == expected

    def test_classes_whose_rows_are_all_left_out_take_none_away(self) -> None:
        assert stratified_sizes(80, 90, Split(validation=0.2, test=0.1)) == (80, 0, 0)
