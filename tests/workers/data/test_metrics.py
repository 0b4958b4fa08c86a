"""Metrics from sums and from outputs, against scikit-learn and against each other."""

import math
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn import metrics
from sklearn.metrics import accuracy_score, mean_absolute_error, r2_score, root_mean_squared_error

from workers.data.metrics import Yardstick, evaluate, no_sums, readings

ALL_OF_CLASSES = ["accuracy", "top_3", "top_5", "f1", "auc"]
ALL_OF_NUMBERS = ["mae", "rmse", "r2"]


class TestReadingsOfClasses:
    def test_accuracy_equals_scikit_learn(self) -> None:
        truth, guess = np.random.default_rng(0).integers(0, 3, (2, 100))
        sums = np.array([42.0, (truth == guess).sum()])

        values = readings(sums, Yardstick.of("classification", truth), ["accuracy"])

        assert values == {"loss": 0.42, "accuracy": pytest.approx(accuracy_score(truth, guess))}

    def test_only_what_was_asked_for(self) -> None:
        assert readings(np.array([2.0, 4.0]), Yardstick("classification", 8), []) == {"loss": 0.25}

    def test_what_sums_cannot_tell_is_left_out(self) -> None:
        values = readings(np.array([2.0, 4.0]), Yardstick("classification", 8), ALL_OF_CLASSES)

        assert list(values) == ["loss", "accuracy"]


class TestReadingsOfNumbers:
    def test_equal_scikit_learn_in_the_targets_own_unit(self) -> None:
        generator = np.random.default_rng(1)
        truth = generator.normal(150, 80, 60)
        guess = truth + generator.normal(0, 30, 60)
        unit, mean = 77.0, 150.0
        error = (guess - truth) / unit
        sums = np.array([(error**2).sum(), np.abs(error).sum(), (error**2).sum()])
        yardstick = Yardstick.of("regression", ((truth - mean) / unit)[:, None], unit)

        values = readings(sums, yardstick, ALL_OF_NUMBERS)

        assert values["mae"] == pytest.approx(mean_absolute_error(truth, guess), rel=1e-12)
        assert values["rmse"] == pytest.approx(root_mean_squared_error(truth, guess), rel=1e-12)
        assert values["r2"] == pytest.approx(r2_score(truth, guess), rel=1e-12)

    def test_r2_is_left_out_where_the_target_does_not_vary(self) -> None:
        yardstick = Yardstick.of("regression", np.full((5, 1), 0.3))

        assert "r2" not in readings(np.array([1.0, 1.0, 1.0]), yardstick, ["r2"])

    def test_not_a_number_stays_one(self) -> None:
        values = readings(np.full(3, np.nan), Yardstick("regression", 4, 1.0, 2.0), ALL_OF_NUMBERS)

        assert all(math.isnan(value) for value in values.values())
        assert len(values) == 4


class TestEvaluateClasses:
    @pytest.fixture
    def case(self) -> tuple[Any, Any]:
        random = np.random.default_rng(3)
        truth = random.integers(0, 7, 200)
        logits = random.normal(size=(200, 7)) + 2.0 * (np.arange(7) == truth[:, None])
        return logits.astype(np.float32), truth

    def test_every_metric_equals_scikit_learn(self, case: tuple[Any, Any]) -> None:
        logits, truth = case
        exact = logits.astype(np.float64)
        chances = np.exp(exact) / np.exp(exact).sum(axis=1, keepdims=True)
        guess = logits.argmax(axis=1)

        values = evaluate(logits, truth, "classification", ALL_OF_CLASSES, 1.0, "cross_entropy")

        assert values == {
            "loss": pytest.approx(metrics.log_loss(truth, chances), rel=1e-12),
            "accuracy": pytest.approx(metrics.accuracy_score(truth, guess), rel=1e-12),
            "top_3": pytest.approx(metrics.top_k_accuracy_score(truth, exact, k=3), rel=1e-12),
            "top_5": pytest.approx(metrics.top_k_accuracy_score(truth, exact, k=5), rel=1e-12),
            "f1": pytest.approx(metrics.f1_score(truth, guess, average="macro"), rel=1e-12),
            "auc": pytest.approx(metrics.roc_auc_score(truth, chances, multi_class="ovr"), rel=1e-12),
        }

    def test_a_metric_that_is_undefined_is_left_out(self) -> None:
        values = evaluate(np.zeros((3, 2)), np.array([1, 1, 1]), "classification", ["auc", "f1"], 1.0, "cross_entropy")

        # No row of class 0, so no area; f1 counts both classes, since 0 was predicted: 0 and 0.
        assert list(values) == ["loss", "f1"]
        assert values["f1"] == 0.0

    @given(st.integers(1, 50), st.integers(2, 5))
    def test_agrees_with_what_a_device_adds_up(self, rows: int, classes: int) -> None:
        random = np.random.default_rng(rows)
        truth, logits = random.integers(0, classes, rows), random.normal(size=(rows, classes))
        whole = evaluate(logits, truth, "classification", ["accuracy"], 1.0, "cross_entropy")
        sums = np.array([whole["loss"] * rows, (logits.argmax(axis=1) == truth).sum()])

        assert readings(sums, Yardstick.of("classification", truth), ["accuracy"]) == pytest.approx(whole, rel=1e-12)

    def test_outputs_that_are_not_finite_warn_of_nothing(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values = evaluate(
                np.full((4, 3), np.nan), np.array([0, 1, 2, 0]), "classification", ALL_OF_CLASSES, 1.0, "cross_entropy"
            )
        assert math.isnan(values["loss"])


class TestEvaluateNumbers:
    @pytest.mark.parametrize("loss", ["mse", "mae", "huber"])
    def test_every_metric_equals_scikit_learn_in_the_targets_own_unit(self, loss: str) -> None:
        random = np.random.default_rng(4)
        truth, guess = random.normal(size=(2, 90, 1))

        values = evaluate(guess.astype(np.float32), truth, "regression", ALL_OF_NUMBERS, 12.5, loss)

        exact = guess.astype(np.float32).astype(np.float64)
        assert values["mae"] == pytest.approx(12.5 * mean_absolute_error(truth, exact), rel=1e-12)
        assert values["rmse"] == pytest.approx(12.5 * root_mean_squared_error(truth, exact), rel=1e-12)
        assert values["r2"] == pytest.approx(r2_score(truth, exact), rel=1e-12)
        expected = {"mse": metrics.mean_squared_error, "mae": mean_absolute_error, "huber": _huber}[loss](truth, exact)
        assert values["loss"] == pytest.approx(expected, rel=1e-12)

    def test_r2_of_a_target_that_does_not_vary_is_left_out(self) -> None:
        assert list(evaluate(np.zeros((3, 1)), np.ones((3, 1)), "regression", ["r2"], 1.0, "mse")) == ["loss"]

    def test_outputs_beyond_any_number_warn_of_nothing(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            values = evaluate(np.full((3, 1), 1e200), np.ones((3, 1)), "regression", ALL_OF_NUMBERS, 1.0, "mse")
        assert math.isinf(values["loss"])


class TestNoSums:
    def test_one_place_for_each_sum(self) -> None:
        assert no_sums("classification").tolist() == [0.0, 0.0]
        assert no_sums("regression").tolist() == [0.0, 0.0, 0.0]


def _huber(truth: Any, guess: Any) -> float:
    """Huber's loss with delta 1, in its other form: the square of the clipped error plus what was clipped."""
    error = np.abs(truth - guess)
    near = np.minimum(error, 1)
    return float((near**2 / 2 + (error - near)).mean())
