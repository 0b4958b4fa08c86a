"""The evaluation report, ready for JSON."""

import json
from typing import Any

import numpy as np
import pytest
from sklearn import metrics

from workers.data.reports import report
from workers.data.standardise import Scaling


def strict(found: dict[str, Any]) -> dict[str, Any]:
    """The same, after a parser that knows no NaN."""
    again: dict[str, Any] = json.loads(json.dumps(found, allow_nan=False))
    return again


class TestClassification:
    @pytest.fixture
    def case(self) -> tuple[Any, Any]:
        random = np.random.default_rng(0)
        truth = random.integers(0, 4, 120)
        return random.normal(size=(120, 4)) + 1.5 * (np.arange(4) == truth[:, None]), truth

    def test_each_class_equals_scikit_learns_report(self, case: tuple[Any, Any]) -> None:
        logits, truth = case
        labels = ["ash", "elm", "oak", "pine tree"]

        found = strict(report(logits, truth, task="classification", loss="cross_entropy", labels=labels))

        expected = metrics.classification_report(
            truth, logits.argmax(axis=1), target_names=labels, output_dict=True, zero_division=0
        )
        for row in found["classes"]:
            theirs = expected[row["label"]]
            ours = [row["precision"], row["recall"], row["f1"], row["rows"]]
            assert ours == pytest.approx(
                [theirs["precision"], theirs["recall"], theirs["f1-score"], theirs["support"]], rel=1e-12
            )
        assert found["metrics"]["accuracy"] == pytest.approx(expected["accuracy"], rel=1e-12)
        assert found["metrics"]["f1"] == pytest.approx(expected["macro avg"]["f1-score"], rel=1e-12)
        assert found["metrics"]["balanced_accuracy"] == pytest.approx(expected["macro avg"]["recall"], rel=1e-12)
        assert (found["rows"], found["task"]) == (120, "classification")

    def test_rows_of_the_matrix_are_the_truth(self, case: tuple[Any, Any]) -> None:
        logits, truth = case

        found = report(logits, truth, task="classification", loss="cross_entropy", labels=[1, 2, 3, 4])

        assert found["confusion_matrix"] == metrics.confusion_matrix(truth, logits.argmax(axis=1)).tolist()
        assert [row["predicted"] for row in found["classes"]] == np.sum(found["confusion_matrix"], axis=0).tolist()

    def test_the_most_frequent_mistakes_come_first(self) -> None:
        truth = np.array([0, 0, 0, 1, 1, 2])
        guess = np.array([1, 1, 0, 1, 2, 2])

        found = report(np.eye(3)[guess], truth, task="classification", loss="cross_entropy", labels=["a", "b", "c"])

        assert found["confusions"] == [
            {"truth": "a", "predicted": "b", "rows": 2},
            {"truth": "b", "predicted": "c", "rows": 1},
        ]

    def test_what_is_undefined_is_none(self) -> None:
        found = strict(
            report(np.eye(3)[[0, 0]], np.array([0, 0]), task="classification", loss="cross_entropy", labels=[7, 8, 9])
        )

        assert found["classes"][0] == {
            "label": 7,
            "rows": 2,
            "predicted": 2,
            "precision": 1.0,
            "recall": 1.0,
            "f1": 1.0,
            "auc": None,
        }
        assert found["classes"][1] == dict.fromkeys(("precision", "recall", "f1", "auc")) | {
            "label": 8,
            "rows": 0,
            "predicted": 0,
        }
        assert found["metrics"]["auc"] is None

    def test_top_k_is_there_when_there_are_more_classes(self, case: tuple[Any, Any]) -> None:
        logits, truth = case

        found = report(logits, truth, task="classification", loss="cross_entropy", labels=list("abcd"))

        assert found["metrics"]["top_3"] == pytest.approx(metrics.top_k_accuracy_score(truth, logits, k=3))
        assert "top_5" not in found["metrics"]


class TestRegression:
    def test_is_in_the_targets_own_unit(self) -> None:
        random = np.random.default_rng(1)
        truth = random.normal(150, 80, 300)
        guess = truth + random.normal(5, 30, 300)
        target = Scaling(mean=np.array([150.0]), scale=np.array([80.0]))

        found = strict(
            report(
                target.apply(guess[:, None]), target.apply(truth[:, None]), task="regression", loss="mse", target=target
            )
        )

        assert found["metrics"] == {
            "loss": pytest.approx(metrics.mean_squared_error(truth, guess) / 80**2, rel=1e-9),
            "mae": pytest.approx(metrics.mean_absolute_error(truth, guess), rel=1e-9),
            "rmse": pytest.approx(metrics.root_mean_squared_error(truth, guess), rel=1e-9),
            "r2": pytest.approx(metrics.r2_score(truth, guess), rel=1e-9),
            "median_absolute_error": pytest.approx(metrics.median_absolute_error(truth, guess), rel=1e-9),
            "largest_error": pytest.approx(metrics.max_error(truth, guess), rel=1e-9),
        }
        assert found["residuals"]["mean"] == pytest.approx((truth - guess).mean(), rel=1e-9)
        assert list(found["residuals"]["quantiles"]) == ["0.0", "0.05", "0.25", "0.5", "0.75", "0.95", "1.0"]
        assert found["residuals"]["quantiles"]["0.95"] == pytest.approx(np.quantile(truth - guess, 0.95), rel=1e-9)
        assert found["points"]["truth"] == pytest.approx(truth.tolist(), rel=1e-9)

    def test_of_many_rows_a_thousand_are_shown_from_first_to_last(self) -> None:
        truth = np.arange(5000.0)[:, None]

        found = report(truth + 1, truth, task="regression", loss="mae")

        assert len(found["points"]["truth"]) == 1000
        assert (found["points"]["truth"][0], found["points"]["truth"][-1]) == (0, 4999)
        assert np.subtract(found["points"]["predicted"], found["points"]["truth"]).tolist() == [1.0] * 1000
        assert found["rows"] == 5000

    def test_a_target_that_does_not_vary_has_no_r2(self) -> None:
        assert report(np.zeros((3, 1)), np.ones((3, 1)), task="regression", loss="mse")["metrics"]["r2"] is None

    def test_what_is_not_finite_is_none(self) -> None:
        found = strict(report(np.full((3, 1), np.nan), np.ones((3, 1)), task="regression", loss="mse"))

        assert found["metrics"]["mae"] is None
        assert found["points"]["predicted"] == [None] * 3


class TestEmptyPart:
    @pytest.mark.parametrize("task", ["classification", "regression"])
    def test_says_only_that(self, task: Any) -> None:
        assert report(np.zeros((0, 3)), np.zeros(0), task=task, loss="mse") == {"rows": 0}
