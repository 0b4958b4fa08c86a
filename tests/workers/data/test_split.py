"""Which rows go into which part."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spec.data import EffectiveSplit
from app.spec.parts import part_sizes
from workers.data.split import PART_NAMES, Division, TooFewRows, divide


def stratified(validation: float, test: float = 0.0, seed: int = 0) -> EffectiveSplit:
    return EffectiveSplit(method="stratified", validation=validation, test=test, seed=seed)


def at_random(validation: float, test: float = 0.0, seed: int = 0) -> EffectiveSplit:
    return EffectiveSplit(method="random", validation=validation, test=test, seed=seed)


def labels(*counts: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.repeat(np.arange(len(counts)), counts)


def all_rows(division: Division) -> list[int]:
    return sorted(np.concatenate([division.rows(name) for name in PART_NAMES]).tolist())


class TestEverySplit:
    @pytest.mark.parametrize("method", ["random", "stratified"])
    @pytest.mark.parametrize(("validation", "test"), [(0.2, 0.0), (0.2, 0.1), (0.0, 0.0), (0.5, 0.4)])
    def test_uses_each_row_once_in_parts_of_the_promised_sizes(
        self, method: str, validation: float, test: float
    ) -> None:
        split = EffectiveSplit.model_validate({"method": method, "validation": validation, "test": test, "seed": 3})

        division = divide(103, labels(50, 30, 23), split)

        assert all_rows(division) == list(range(103))
        assert tuple(len(division.rows(name)) for name in PART_NAMES) == part_sizes(103, split)

    @pytest.mark.parametrize("make", [at_random, stratified])
    def test_same_seed_gives_the_same_parts_and_another_seed_others(self, make: Callable[..., EffectiveSplit]) -> None:
        first, again, other = (divide(60, labels(30, 30), make(0.3, seed=seed)) for seed in (7, 7, 8))

        assert first.validation.tolist() == again.validation.tolist()
        assert first.validation.tolist() != other.validation.tolist()

    def test_rows_of_a_part_are_in_rising_order(self) -> None:
        division = divide(60, labels(30, 30), stratified(0.3, 0.2))

        for name in PART_NAMES:
            assert (np.diff(division.rows(name)) > 0).all()

    def test_nothing_left_to_train_on_is_refused_with_the_numbers(self) -> None:
        with pytest.raises(TooFewRows, match=r"\(validation 0.5, test 0.4\) of 2 usable rows") as caught:
            divide(2, None, at_random(0.5, 0.4))

        assert (caught.value.code, caught.value.rows) == ("invalid_data", 2)

    @given(
        st.lists(st.integers(1, 30), min_size=1, max_size=6),
        st.floats(0, 0.45),
        st.floats(0, 0.45),
        st.sampled_from(["random", "stratified"]),
        st.integers(0, 2**32 - 1),
    )
    def test_any_table_any_shares(
        self, counts: list[int], validation: float, test: float, method: str, seed: int
    ) -> None:
        classes = labels(*counts)
        raw = {"method": method, "validation": validation, "test": test, "seed": seed}
        split = EffectiveSplit.model_validate(raw)
        sizes = part_sizes(len(classes), split)
        if sizes.train < 1:
            with pytest.raises(TooFewRows):
                divide(len(classes), classes, split)
            return

        division = divide(len(classes), classes, split)

        assert all_rows(division) == list(range(len(classes)))
        found = tuple(len(division.rows(name)) for name in PART_NAMES)
        assert found == sizes or (method == "stratified" and found[0] >= max(sizes.train, len(counts)))
        if method == "stratified":
            assert (np.bincount(classes[division.train], minlength=len(counts)) > 0).all()


class TestRandomSplit:
    def test_takes_no_notice_of_the_classes(self) -> None:
        without = divide(60, None, at_random(0.3))

        assert divide(60, labels(59, 1), at_random(0.3)).validation.tolist() == without.validation.tolist()

    def test_each_row_is_as_likely_as_any_other(self) -> None:
        hits = np.zeros(20)
        for seed in range(400):
            hits[divide(20, None, at_random(0.25, seed=seed)).validation] += 1

        # A row is in 100 of 400 parts on average; binomial, so 5 standard deviations are 43.
        assert np.abs(hits - 100).max() < 43


class TestStratifiedSplit:
    def test_each_class_keeps_its_share(self) -> None:
        classes = labels(60, 30, 10)

        division = divide(100, classes, stratified(0.2, 0.1))

        assert np.bincount(classes[division.train]).tolist() == [42, 21, 7]
        assert np.bincount(classes[division.validation]).tolist() == [12, 6, 2]
        assert np.bincount(classes[division.test]).tolist() == [6, 3, 1]

    def test_largest_remainders_get_the_rows_that_proportions_leave(self) -> None:
        classes = labels(7, 5, 3)

        division = divide(15, classes, stratified(0.2))

        # Shares of 3 rows: 1.4, 1.0, 0.6. The floors give 2 rows; the largest remainder, 0.6, gets the third.
        assert np.bincount(classes[division.validation]).tolist() == [1, 1, 1]

    def test_class_of_one_row_is_trained_and_not_measured(self) -> None:
        classes = labels(56, 3, 1)

        division = divide(60, classes, stratified(0.2, 0.2))

        assert np.bincount(classes[division.train], minlength=3).tolist()[2] == 1
        assert len(division.validation) == len(division.test) == 12

    @pytest.mark.parametrize("counts", [(2, 2, 2), (1, 1, 40), (3, 2, 1), (100, 2)])
    def test_every_class_is_in_the_training_part_however_large_the_others(self, counts: tuple[int, ...]) -> None:
        classes = labels(*counts)

        division = divide(len(classes), classes, stratified(0.3, 0.2))

        assert (np.bincount(classes[division.train], minlength=len(counts)) > 0).all()
        assert all_rows(division) == list(range(len(classes)))

    def test_classes_too_small_to_share_leave_a_part_short_rather_than_unlearned(self) -> None:
        division = divide(4, labels(1, 1, 1, 1), stratified(0.5))

        assert (len(division.train), len(division.validation)) == (4, 0)


def given_split() -> EffectiveSplit:
    return EffectiveSplit(method="given", column="part", validation=0.2, test=0.0, seed=0)


def by_time(validation: float, test: float = 0.0, seed: int = 0) -> EffectiveSplit:
    return EffectiveSplit(method="time", column="at", validation=validation, test=test, seed=seed)


class TestGivenSplit:
    @given(st.lists(st.sampled_from(PART_NAMES), min_size=1, max_size=40))
    def test_each_row_is_where_the_column_says(self, names: list[str]) -> None:
        column = np.array(names, dtype=object)
        if "train" not in names:
            with pytest.raises(TooFewRows, match="No usable row has 'train' in column 'part'"):
                divide(len(names), None, given_split(), column)
            return

        division = divide(len(names), None, given_split(), column)

        assert all_rows(division) == list(range(len(names)))
        for part in PART_NAMES:
            assert {names[row] for row in division.rows(part)} <= {part}

    def test_shares_and_seed_mean_nothing(self) -> None:
        column = np.array(["train", "test", "train"], dtype=object)
        other = EffectiveSplit(method="given", column="part", validation=0.9, test=0.05, seed=9)

        assert divide(3, None, other, column).train.tolist() == divide(3, None, given_split(), column).train.tolist()

    def test_without_its_column_is_a_fault_of_the_caller(self) -> None:
        with pytest.raises(ValueError, match="'given' needs its column"):
            divide(3, None, given_split())


class TestSplitByTime:
    @given(
        st.lists(st.integers(-5, 5) | st.floats(-5, 5), min_size=2, max_size=50),
        st.floats(0.01, 0.45),
        st.floats(0, 0.45),
    )
    def test_no_row_is_later_than_one_of_a_later_part(self, at: list[float], validation: float, test: float) -> None:
        split = by_time(validation, test)
        sizes = part_sizes(len(at), split)
        if sizes.train < 1:
            return
        times = np.array(at, np.float64)

        division = divide(len(at), None, split, times)

        assert all_rows(division) == list(range(len(at)))
        assert tuple(len(division.rows(name)) for name in PART_NAMES) == sizes
        parts = [times[division.rows(name)] for name in PART_NAMES if len(division.rows(name))]
        for earlier, later in pairwise(parts):
            assert earlier.max() <= later.min()

    def test_of_equal_times_the_earlier_row_comes_first(self) -> None:
        division = divide(10, None, by_time(0.2, 0.2), np.zeros(10))

        assert [division.rows(name).tolist() for name in PART_NAMES] == [[0, 1, 2, 3, 4, 5], [6, 7], [8, 9]]

    def test_classes_and_seed_change_nothing(self) -> None:
        at = np.random.default_rng(0).permutation(20)

        first = divide(20, labels(19, 1), by_time(0.25, seed=1), at)

        assert first.validation.tolist() == np.sort(np.argsort(at)[15:]).tolist()
