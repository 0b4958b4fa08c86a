"""Which rows go into which part."""

from collections.abc import Callable

import numpy as np
import pytest

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
