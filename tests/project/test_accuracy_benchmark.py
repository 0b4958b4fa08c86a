"""The statistics and the tables of `benchmarks.accuracy`; the benchmark itself takes minutes and is run by hand."""

import numpy as np
import pytest
from scipy import stats

from benchmarks.accuracy import bound
from benchmarks.harness.accuracy_tables import cases


class TestBound:
    def test_is_the_lower_end_of_students_interval(self) -> None:
        differences = np.random.default_rng(3).choice([-1 / 3, 0, 1 / 3], size=150, p=[0.1, 0.7, 0.2])
        mean, lower = bound(differences)
        expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95).low
        assert mean == pytest.approx(100 * differences.mean())
        assert lower == pytest.approx(100 * expected)

    def test_equal_hits_have_no_width(self) -> None:
        assert bound(np.zeros(10)) == (0.0, 0.0)


class TestCases:
    def test_are_the_eight_tables_with_their_published_sizes(self) -> None:
        sizes = {case.name: len(case.frame) for case in cases()}
        assert sizes == {
            "digits": 1797,
            "iris": 150,
            "wine": 178,
            "breast_cancer": 569,
            "penguins": 344,
            "biopsy": 699,
            "crabs": 200,
            "turnout": 2000,
        }

    def test_every_target_has_classes_without_gaps(self) -> None:
        for case in cases():
            assert case.frame[case.target].notna().all()
            assert case.frame[case.target].nunique() >= 2
