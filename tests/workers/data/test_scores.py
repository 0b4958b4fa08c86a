"""Scores against scikit-learn, value by value."""

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn import metrics

from workers.data.scores import (
    confusion,
    log_softmax,
    loss_of_rows,
    mean_of_known,
    places,
    precision_recall_f1,
    roc_auc,
)

Cases = tuple[NDArray[np.float64], NDArray[np.int64]]


@st.composite
def cases(draw: Any, *, every_class: bool = False) -> Cases:
    """Logits and true classes; whole logits, so that ties happen."""
    classes = draw(st.integers(2, 6))
    rows = draw(st.integers(2 * classes if every_class else 1, 40))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    truth = random.integers(0, classes, rows)
    if every_class:
        truth[: 2 * classes] = np.tile(np.arange(classes), 2)
    return random.integers(-3, 4, (rows, classes)).astype(np.float64), truth.astype(np.int64)


class TestPlaces:
    @given(cases())
    def test_place_zero_is_where_argmax_is_right(self, case: Cases) -> None:
        logits, truth = case

        assert ((places(logits, truth) == 0) == (logits.argmax(axis=1) == truth)).all()

    @given(cases(every_class=True), st.integers(1, 5))
    def test_top_k_equals_scikit_learn_where_no_logits_are_equal(self, case: Cases, k: int) -> None:
        logits, truth = case
        apart = logits + np.random.default_rng(0).random(logits.shape) / 10  # no ties: their order is ours
        labels = np.arange(logits.shape[1])
        if k >= len(labels) or len(labels) == 2:
            assert k < len(labels) or (places(apart, truth) < k).all()
            return

        expected = metrics.top_k_accuracy_score(truth, apart, k=k, labels=labels)

        assert (places(apart, truth) < k).mean() == pytest.approx(expected, abs=1e-12)

    def test_of_equal_logits_the_lower_class_comes_first(self) -> None:
        assert places(np.zeros((3, 3)), np.array([0, 1, 2])).tolist() == [0, 1, 2]


class TestConfusion:
    @given(cases())
    def test_equals_scikit_learn(self, case: Cases) -> None:
        logits, truth = case
        guess, labels = logits.argmax(axis=1), np.arange(logits.shape[1])

        found = confusion(truth, guess, len(labels))

        assert found.tolist() == metrics.confusion_matrix(truth, guess, labels=labels).tolist()

    @given(cases())
    def test_precision_recall_and_f1_equal_scikit_learn_and_are_nan_where_undefined(self, case: Cases) -> None:
        logits, truth = case
        guess, labels = logits.argmax(axis=1), np.arange(logits.shape[1])

        found = precision_recall_f1(confusion(truth, guess, len(labels)))

        expected = metrics.precision_recall_fscore_support(truth, guess, labels=labels, zero_division=np.nan)
        for ours, theirs in zip(found, expected[:3], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12)

    @given(cases())
    def test_macro_f1_equals_scikit_learn(self, case: Cases) -> None:
        logits, truth = case
        guess = logits.argmax(axis=1)

        found = mean_of_known(precision_recall_f1(confusion(truth, guess, logits.shape[1]))[2])

        # Its default: the classes that are in the truth or were predicted.
        assert found == pytest.approx(metrics.f1_score(truth, guess, average="macro", zero_division=0), rel=1e-12)


class TestAuc:
    @given(cases(every_class=True))
    def test_equals_scikit_learn_for_each_class(self, case: Cases) -> None:
        logits, truth = case
        scores = log_softmax(logits)

        for label, area in enumerate(roc_auc(scores, truth)):
            assert area == pytest.approx(metrics.roc_auc_score(truth == label, scores[:, label]), rel=1e-12)

    @given(cases(every_class=True))
    def test_the_mean_is_its_macro_average_of_one_against_the_rest(self, case: Cases) -> None:
        logits, truth = case
        chances = np.exp(log_softmax(logits))
        if logits.shape[1] == 2:
            expected = metrics.roc_auc_score(truth, chances[:, 1])
        else:
            expected = metrics.roc_auc_score(truth, chances, multi_class="ovr", average="macro")

        # Probabilities round where their logarithms do not, and a tie that rounding makes counts one half.
        assert mean_of_known(roc_auc(log_softmax(logits), truth)) == pytest.approx(expected, abs=0.02)

    def test_is_nan_for_a_class_that_has_all_rows_or_none(self) -> None:
        areas = roc_auc(np.array([[0.0, 1, 2], [2, 1, 0]]), np.array([1, 1]))

        assert np.isnan(areas).all()
        assert np.isnan(mean_of_known(areas))

    def test_all_scores_equal_is_chance(self) -> None:
        assert roc_auc(np.zeros((6, 2)), np.array([0, 0, 1, 1, 1, 1])).tolist() == [0.5, 0.5]


class TestLosses:
    @given(cases(every_class=True))
    def test_cross_entropy_equals_scikit_learn(self, case: Cases) -> None:
        logits, truth = case
        expected = metrics.log_loss(truth, np.exp(log_softmax(logits)), labels=np.arange(logits.shape[1]))

        assert loss_of_rows("cross_entropy", logits, truth).mean() == pytest.approx(expected, rel=1e-9)

    @pytest.mark.parametrize("size", [1e3, 1e300])
    def test_large_logits_stay_finite(self, size: float) -> None:
        losses = loss_of_rows("cross_entropy", np.array([[size, 0.0], [0.0, size]]), np.array([0, 0]))

        # log(1 + exp(-size)) is 0, log(1 + exp(size)) is the size.
        assert losses.tolist() == pytest.approx([0.0, size])

    @pytest.mark.parametrize(
        ("name", "expected"),
        [("mse", [0.25, 4.0]), ("mae", [0.5, 2.0]), ("huber", [0.125, 1.5])],
    )
    def test_of_numbers_by_hand(self, name: str, expected: list[float]) -> None:
        # Errors 0.5 and -2; huber with delta 1: half the square below 1, |e| - 0.5 above.
        assert loss_of_rows(name, np.array([[1.5], [1.0]]), np.array([[1.0], [3.0]])).tolist() == expected

    @pytest.mark.parametrize("name", ["cross_entropy", "mse", "mae", "huber"])
    def test_outputs_that_are_not_finite_give_such_a_loss_without_a_warning(self, name: str) -> None:
        outputs = np.array([[np.nan, np.inf], [np.inf, np.inf]])[:, : 2 if name == "cross_entropy" else 1]
        targets: NDArray[Any] = np.array([0, 1]) if name == "cross_entropy" else np.zeros((2, 1))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert not np.isfinite(loss_of_rows(name, outputs, targets)).any()
