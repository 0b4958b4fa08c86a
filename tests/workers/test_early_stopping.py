"""When training stops by itself, and which epoch was the best; tests/parity compares the waiting with Keras."""

import math
from collections.abc import Sequence

import pytest

from app.spec.training import EarlyStopping
from workers.checkpoints import BestSoFar, PatienceState
from workers.early_stopping import Best, Patience, better, finite


def stops_after(values: Sequence[float], **settings: object) -> int | None:
    """Return the epoch after which training stops, or None."""
    stopping = EarlyStopping.model_validate({"monitor": "val_loss", **settings})
    patience = Patience(stopping)
    for epoch, value in enumerate(values, start=1):
        if patience.observe({stopping.monitor: value}):
            return epoch
    return None


class TestBetter:
    @pytest.mark.parametrize("monitor", ["val_loss", "loss", "val_mae", "rmse"])
    def test_smaller_errors_are_better(self, monitor: str) -> None:
        assert better(monitor, 0.4, 0.5)
        assert not better(monitor, 0.5, 0.5)

    @pytest.mark.parametrize("monitor", ["val_accuracy", "accuracy", "val_f1", "val_auc", "val_r2", "val_top_3"])
    def test_larger_scores_are_better(self, monitor: str) -> None:
        assert better(monitor, 0.5, 0.4)
        assert not better(monitor, 0.5, 0.5)

    def test_by_more_than_the_least_difference(self) -> None:
        assert better("loss", 0.25, 0.5, 0.125)
        assert not better("loss", 0.375, 0.5, 0.125)
        assert not better("accuracy", 0.625, 0.5, 0.125)

    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_what_is_not_finite_is_never_better(self, value: float) -> None:
        assert not better("loss", value, None)
        assert not better("accuracy", value, 0.5)


class TestBest:
    def test_is_the_first_of_equal_epochs(self) -> None:
        best = Best("val_loss")

        seen = [
            best.observe({"val_loss": value}, epoch, 10 * epoch) for epoch, value in enumerate([3, 1, 2, 1, 0.5], 1)
        ]

        assert seen == [True, True, False, False, True]
        assert best.so_far == BestSoFar(value=0.5, epoch=5, step=50, metrics={"val_loss": 0.5})

    def test_keeps_the_epochs_other_values_where_they_are_numbers(self) -> None:
        best = Best("val_loss")

        best.observe({"val_loss": 1.0, "accuracy": 0.5, "r2": math.nan}, 1, 10)

        assert best.so_far is not None
        assert best.so_far.metrics == {"val_loss": 1.0, "accuracy": 0.5}

    def test_goes_on_from_what_was_remembered(self) -> None:
        best = Best("val_loss", BestSoFar(value=0.5, epoch=3, step=30, metrics={}))

        assert not best.observe({"val_loss": 0.6}, 4, 40)
        assert best.observe({"val_loss": 0.4}, 5, 50)

    def test_an_epoch_without_the_value_is_not_the_best(self) -> None:
        assert not Best("val_auc").observe({"val_loss": 0.1}, 1, 10)

    def test_least_difference_of_early_stopping_does_not_matter_here(self) -> None:
        best = Best("val_loss")
        best.observe({"val_loss": 0.5}, 1, 10)

        assert best.observe({"val_loss": 0.4999}, 2, 20)


class TestPatience:
    def test_stops_after_so_many_epochs_that_were_not_better(self) -> None:
        assert stops_after([1.0, 0.9, 0.95, 0.92, 0.91, 0.8], patience=3) == 5
        assert stops_after([1.0, 0.9, 0.95, 0.92, 0.85, 0.86, 0.87], patience=3) is None

    def test_patience_zero_stops_at_the_first_epoch_that_is_not_better(self) -> None:
        assert stops_after([3.0, 2.0, 1.0, 1.0], patience=0) == 4

    def test_a_value_that_is_no_number_is_not_better(self) -> None:
        assert stops_after([1.0, math.nan, math.nan], patience=2) == 3

    @pytest.mark.parametrize("cut", range(1, 8))
    def test_goes_on_from_its_state_as_if_nothing_had_happened(self, cut: int) -> None:
        settings = EarlyStopping(patience=4, min_delta=0.1)
        values = [1.0, 0.95, 0.7, 0.69, 0.68, 0.75, 0.66, 0.9]
        whole = Patience(settings)
        expected = [whole.observe({"val_loss": value}) for value in values]
        first = Patience(settings)
        seen = [first.observe({"val_loss": value}) for value in values[:cut]]

        state = PatienceState.model_validate_json(first.state().model_dump_json())
        second = Patience(settings, state)
        seen += [second.observe({"val_loss": value}) for value in values[cut:]]

        assert seen == expected


class TestFinite:
    def test_leaves_out_what_json_cannot_hold(self) -> None:
        assert finite({"a": 1.0, "b": math.nan, "c": math.inf}) == {"a": 1.0}
