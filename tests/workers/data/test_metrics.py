"""Metrics from sums, against scikit-learn."""

import math

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, mean_absolute_error, r2_score, root_mean_squared_error

from workers.data.metrics import Yardstick, no_sums, readings


class TestClassification:
    def test_accuracy_equals_scikit_learn(self) -> None:
        truth, guess = np.random.default_rng(0).integers(0, 3, (2, 100))
        sums = np.array([42.0, (truth == guess).sum()])

        values = readings(sums, Yardstick.of("classification", truth), ["accuracy"])

        assert values == {"loss": 0.42, "accuracy": pytest.approx(accuracy_score(truth, guess))}

    def test_only_what_was_asked_for(self) -> None:
        assert readings(np.array([2.0, 4.0]), Yardstick("classification", 8), []) == {"loss": 0.25}


class TestRegression:
    def test_equals_scikit_learn_in_the_targets_own_unit(self) -> None:
        generator = np.random.default_rng(1)
        truth = generator.normal(150, 80, 60)
        guess = truth + generator.normal(0, 30, 60)
        unit, mean = 77.0, 150.0
        error = (guess - truth) / unit
        sums = np.array([(error**2).sum(), np.abs(error).sum(), (error**2).sum()])
        yardstick = Yardstick.of("regression", ((truth - mean) / unit)[:, None], unit)

        values = readings(sums, yardstick, ["mae", "rmse", "r2"])

        assert values["mae"] == pytest.approx(mean_absolute_error(truth, guess), rel=1e-12)
        assert values["rmse"] == pytest.approx(root_mean_squared_error(truth, guess), rel=1e-12)
        assert values["r2"] == pytest.approx(r2_score(truth, guess), rel=1e-12)

    def test_r2_is_left_out_where_the_target_does_not_vary(self) -> None:
        yardstick = Yardstick.of("regression", np.full((5, 1), 0.3))

        assert "r2" not in readings(np.array([1.0, 1.0, 1.0]), yardstick, ["r2"])

    def test_not_a_number_stays_one(self) -> None:
        values = readings(np.full(3, np.nan), Yardstick("regression", 4, 1.0, 2.0), ["mae", "rmse", "r2"])

        assert all(math.isnan(value) for value in values.values())
        assert len(values) == 4


class TestNoSums:
    def test_one_place_for_each_sum(self) -> None:
        assert no_sums("classification").tolist() == [0.0, 0.0]
        assert no_sums("regression").tolist() == [0.0, 0.0, 0.0]
