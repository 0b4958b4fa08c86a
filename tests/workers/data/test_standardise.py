"""Means and scales, against scikit-learn's StandardScaler and closed forms."""

import numpy as np
from numpy.testing import assert_allclose
from sklearn.preprocessing import StandardScaler

from workers.data.standardise import Scaling


class TestFit:
    def test_equals_scikit_learn(self) -> None:
        rows = np.random.default_rng(0).normal([0, 5, -300], [1, 0.01, 40], (200, 3))
        reference = StandardScaler().fit(rows)

        scaling = Scaling.fit(rows)

        assert_allclose(scaling.mean, reference.mean_, rtol=1e-12, atol=1e-14)
        assert_allclose(scaling.scale, reference.scale_, rtol=1e-12)
        assert_allclose(scaling.apply(rows), reference.transform(rows), rtol=1e-9, atol=1e-12)

    def test_constant_column_has_scale_one_and_becomes_zero(self) -> None:
        rows = np.column_stack([np.full(7, 0.1), np.zeros(7), np.arange(7.0)])

        scaling = Scaling.fit(rows)

        assert scaling.scale[:2].tolist() == [1.0, 1.0]
        assert scaling.apply(rows)[:, :2].tolist() == [[0.0, 0.0]] * 7

    def test_value_unseen_in_training_stays_finite_in_a_constant_column(self) -> None:
        scaling = Scaling.fit(np.full((5, 1), 3.0))

        assert scaling.apply(np.array([[4.5]])).tolist() == [[1.5]]

    def test_small_variation_on_a_large_value_is_no_constant(self) -> None:
        scaling = Scaling.fit(np.array([[1e12], [1e12 + 2]]))

        assert_allclose(scaling.apply(np.array([[1e12], [1e12 + 2]])), [[-1], [1]], rtol=1e-3)

    def test_huge_values_do_not_overflow(self) -> None:
        scaling = Scaling.fit(np.array([[1e300], [-1e300]]))

        assert_allclose([scaling.mean[0], scaling.scale[0]], [0.0, 1e300])

    def test_one_row_is_enough(self) -> None:
        assert Scaling.fit(np.array([[2.0, 0.0]])).apply(np.array([[2.0, 0.0]])).tolist() == [[0.0, 0.0]]


class TestUndo:
    def test_brings_values_back(self) -> None:
        rows = np.random.default_rng(1).normal(100, 20, (50, 2))
        scaling = Scaling.fit(rows)

        assert_allclose(scaling.undo(scaling.apply(rows)), rows, rtol=1e-12)

    def test_identity_changes_nothing(self) -> None:
        rows = np.array([[1.5, -2.0]])

        assert Scaling.identity(2).apply(rows).tolist() == Scaling.identity(2).undo(rows).tolist() == rows.tolist()
