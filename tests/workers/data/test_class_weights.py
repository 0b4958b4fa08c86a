"""How much the rows of a class count in the loss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight

from workers.data.class_weights import class_weights
from workers.data.labels import Label, Vocabulary


class TestBalanced:
    @given(st.lists(st.integers(1, 100), min_size=1, max_size=8))
    def test_equals_scikit_learn(self, counts: list[int]) -> None:
        labels = np.repeat(np.arange(len(counts)), counts)

        weights = class_weights("balanced", Vocabulary(tuple(range(len(counts)))), counts)

        expected = compute_class_weight("balanced", classes=np.arange(len(counts)), y=labels)
        assert weights is not None
        np.testing.assert_allclose(weights, expected, rtol=1e-12)

    def test_a_class_without_a_training_row_changes_nothing_for_the_others(self) -> None:
        weights = class_weights("balanced", Vocabulary(("a", "b", "c")), [6, 0, 2])

        # 8 rows, 2 classes that are there: 8 / (2 * 6) and 8 / (2 * 2).
        assert weights is not None
        assert weights.tolist() == pytest.approx([2 / 3, 1.0, 2.0], rel=1e-12)


class TestGiven:
    @pytest.mark.parametrize(
        ("labels", "setting"),
        [
            (("oak", "pine tree"), {"pine tree": 3.0}),
            ((1, 7), {"7": 3.0}),
            ((-1, 4), {"4": 3.0}),
            ((False, True), {"true": 3.0}),
        ],
    )
    def test_labels_are_written_as_the_schema_writes_them(
        self, labels: tuple[Label, ...], setting: dict[str, float]
    ) -> None:
        weights = class_weights(setting, Vocabulary(labels), [5, 5])

        assert weights is not None
        assert weights.tolist() == [1.0, 3.0]

    def test_a_class_that_gaps_have_taken_away_is_no_error(self) -> None:
        weights = class_weights({"gone": 2.0}, Vocabulary(("a", "b")), [1, 1])

        assert weights is not None
        assert weights.tolist() == [1.0, 1.0]


class TestNone:
    def test_no_setting_and_no_classes_mean_no_weights(self) -> None:
        assert class_weights(None, Vocabulary(("a", "b")), [1, 1]) is None
        assert class_weights("balanced", None, None) is None
