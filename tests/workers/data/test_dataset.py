"""From columns to parts: what is fitted on what, and what a user is told."""

from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from app.tables import Columns
from tests.workers.training_jobs import effective
from workers.data.dataset import prepare
from workers.data.split import PART_NAMES


def columns(y: list[Any], x: np.ndarray[Any, np.dtype[np.float64]] | None = None) -> Columns:
    rows = len(y)
    labels = np.empty(rows, dtype=object)
    labels[:] = y
    values = np.random.default_rng(0).normal(10, 3, (rows, 4)) if x is None else x
    target = labels if isinstance(y[0], str) else np.array(y, np.float64)
    return Columns(x=values, y=target, row_numbers=np.arange(2, rows + 2), dropped=0)


REGRESSION = effective({"source": "diabetes", "split": {"validation": 0.25, "test": 0.25}})
CLASSES = effective({"source": "iris", "split": {"validation": 0.25, "test": 0.25}})


class TestFeatures:
    def test_scaling_is_fitted_on_the_training_part_alone(self) -> None:
        given = columns(["a", "b"] * 20)
        given.x[::7, 0] = 1e6  # outliers, some of them outside of the training part

        data = prepare(given, CLASSES)

        train = given.x[data.division.train]
        assert_allclose(data.inputs.mean, train.mean(axis=0), rtol=1e-12)
        assert_allclose(data.inputs.scale, train.std(axis=0), rtol=1e-12)
        assert abs(data.inputs.mean[0] - given.x[:, 0].mean()) > 1

    def test_all_parts_get_the_same_scaling(self) -> None:
        given = columns(["a", "b"] * 20)

        data = prepare(given, CLASSES, np.float64)

        for name in PART_NAMES:
            expected = (given.x[data.division.rows(name)] - data.inputs.mean) / data.inputs.scale
            assert_allclose(data.parts[name].x, expected, rtol=1e-12)

    def test_without_standardisation_the_numbers_stay(self) -> None:
        given = columns([100.0, 200.0] * 20)
        spec = effective({"source": "diabetes", "preprocess": {"numeric": "none"}})

        data = prepare(given, spec, np.float64)

        assert data.parts["train"].x.tolist() == given.x[data.division.train].tolist()
        assert sorted(set(data.parts["train"].y.ravel().tolist())) == [100.0, 200.0]

    def test_value_beyond_float32_becomes_infinite_without_a_warning(self) -> None:
        given = columns([1.0, 2.0] * 20)
        given.x[:, 0] = 1e200
        spec = effective({"source": "diabetes", "preprocess": {"numeric": "none"}})

        assert np.isinf(prepare(given, spec).parts["train"].x[:, 0]).all()

    def test_float32_by_default(self) -> None:
        data = prepare(columns([1.0, 2.0] * 20), REGRESSION)

        assert data.parts["train"].x.dtype == np.float32
        assert data.parts["train"].y.dtype == np.float32


class TestTargets:
    def test_regression_targets_are_standardised_on_the_training_part(self) -> None:
        given = columns(np.random.default_rng(2).normal(150, 80, 40).tolist())

        data = prepare(given, REGRESSION, np.float64)

        train = given.y[data.division.train]
        assert data.target is not None
        assert_allclose([data.target.mean[0], data.target.scale[0]], [train.mean(), train.std()], rtol=1e-12)
        assert_allclose(data.parts["train"].y.mean(), 0, atol=1e-12)
        assert data.parts["test"].y.shape == (10, 1)
        assert data.yardsticks["test"].unit == data.target.scale[0]

    def test_classes_are_places_in_the_vocabulary(self) -> None:
        given = columns(["pine tree", "oak"] * 20)

        data = prepare(given, CLASSES)

        assert data.vocabulary is not None
        assert data.vocabulary.labels == ("oak", "pine tree")
        assert data.output_units == 2
        train = data.parts["train"]
        assert data.vocabulary.decode(train.y.astype(np.int64)) == given.y[data.division.train].tolist()

    def test_regression_has_one_output(self) -> None:
        assert prepare(columns([1.0, 2.0] * 20), REGRESSION).output_units == 1


class TestNotices:
    def test_class_of_one_row_is_named(self) -> None:
        data = prepare(columns(["a"] * 36 + ["b"] * 3 + ["c"]), CLASSES)

        ((code, message),) = data.notices
        assert code == "rare_class"
        assert message.startswith("Class 'c' of 'target' has 1 row. It is used for training")

    def test_class_that_a_random_split_keeps_from_training_is_named(self) -> None:
        spec = effective({"source": "iris", "split": {"method": "random", "validation": 0.9}})

        data = prepare(columns(["a"] * 38 + ["b"] * 2), spec)

        assert [code for code, _ in data.notices] == ["class_not_trained"]
        assert "Class 'b' of 'target' has 2 rows, none of them for training" in data.notices[0][1]

    def test_many_rare_classes_are_one_notice(self) -> None:
        data = prepare(columns(["z"] * 31 + [f"name {number}" for number in range(9)]), CLASSES)

        ((code, message),) = data.notices
        assert code == "rare_class"
        assert message.startswith(
            "Classes 'name 0', 'name 1', 'name 2', 'name 3', 'name 4' and 4 more of 'target' have 1 row each."
        )

    @pytest.mark.parametrize("y", [["a", "b"] * 20, [1.0, 2.0] * 20])
    def test_nothing_to_say_otherwise(self, y: list[Any]) -> None:
        spec = CLASSES if isinstance(y[0], str) else REGRESSION

        assert prepare(columns(y), spec).notices == ()
