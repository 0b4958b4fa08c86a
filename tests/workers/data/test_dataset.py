"""From columns to parts: what is fitted on what, and what a user is told."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from app.spec import EffectiveSpec
from app.spec.inputs import InputColumn
from app.tables import Columns
from tests.workers.training_jobs import effective
from workers.data.dataset import prepare
from workers.data.split import PART_NAMES, TooFewRows

FEATURES = ("f1", "f2", "f3", "f4")


def columns(y: list[Any], x: np.ndarray[Any, np.dtype[np.float64]] | None = None, **rest: Any) -> Columns:
    rows = len(y)
    labels = np.empty(rows, dtype=object)
    labels[:] = y
    values = np.random.default_rng(0).normal(10, 3, (rows, 4)) if x is None else x
    target = labels if isinstance(y[0], str) else np.array(y, np.float64)
    return Columns(
        features={name: values[:, place] for place, name in enumerate(FEATURES)},
        inputs=tuple(InputColumn(name, "number", 1) for name in FEATURES),
        y=target,
        row_numbers=np.arange(2, rows + 2),
        **rest,
    )


REGRESSION = effective({"source": "diabetes", "split": {"validation": 0.25, "test": 0.25}})
CLASSES = effective({"source": "iris", "split": {"validation": 0.25, "test": 0.25}})


class TestFeatures:
    def test_all_parts_are_encoded_by_what_the_training_part_tells(self) -> None:
        given = columns(["a", "b"] * 20)
        given.features["f1"][::7] = 1e6  # outliers, some of them outside of the training part

        data = prepare(given, CLASSES, np.float64)

        train = np.stack([given.features[name][data.division.train] for name in FEATURES], axis=1)
        for name in PART_NAMES:
            values = np.stack([given.features[feature][data.division.rows(name)] for feature in FEATURES], axis=1)
            assert_allclose(
                data.parts[name].x, (values - train.mean(axis=0)) / train.std(axis=0), rtol=1e-9, atol=1e-12
            )
        assert data.input_shape == (4,)

    def test_without_standardisation_the_numbers_stay(self) -> None:
        given = columns([100.0, 200.0] * 20)
        spec = effective({"source": "diabetes", "preprocess": {"numeric": "none"}})

        data = prepare(given, spec, np.float64)

        assert data.parts["train"].x[:, 2].tolist() == given.features["f3"][data.division.train].tolist()
        assert sorted(set(data.parts["train"].y.ravel().tolist())) == [100.0, 200.0]
        assert data.unit == 1.0

    def test_value_beyond_float32_becomes_infinite_without_a_warning(self) -> None:
        given = columns([1.0, 2.0] * 20)
        given.features["f1"][:] = 1e200
        spec = effective({"source": "diabetes", "preprocess": {"numeric": "none"}})

        assert np.isinf(prepare(given, spec).parts["train"].x[:, 0]).all()

    def test_float32_by_default(self) -> None:
        data = prepare(columns([1.0, 2.0] * 20), REGRESSION)

        assert data.parts["train"].x.dtype == np.float32
        assert data.parts["train"].y.dtype == np.float32

    def test_an_array_keeps_its_shape_and_memory_order(self) -> None:
        given = replace(
            columns(["a", "b"] * 10),
            features={"image": np.arange(20 * 12.0).reshape(20, 2, 3, 2)},
            inputs=(InputColumn("image", "tensor", 12, shape=(2, 3, 2)),),
        )
        spec = effective({"source": "iris", "preprocess": {"numeric": "none"}})

        data = prepare(given, spec, np.float64)

        assert data.input_shape == (2, 3, 2)
        np.testing.assert_array_equal(data.parts["train"].x, given.features["image"][data.division.train])

    def test_the_encoder_takes_the_tables_other_columns(self) -> None:
        data = prepare(columns(["a", "b"] * 20, others=("target", "id")), CLASSES)

        row = dict.fromkeys(FEATURES, 1.0) | {"id": 7, "target": "a"}
        assert len(data.encoder.read_rows([row])) == 1

    def test_gaps_are_filled_when_the_spec_says_so(self) -> None:
        given = columns(["a", "b"] * 20)
        given.features["f2"][5:9] = np.nan

        data = prepare(given, effective({"source": "iris", "missing": "impute"}))

        assert data.encoder.impute
        assert all(np.isfinite(part.x).all() for part in data.parts.values())


class TestDivision:
    def test_a_given_split_is_followed(self) -> None:
        parts = np.array(["train"] * 20 + ["validation"] * 12 + ["test"] * 8, dtype=object)
        data = prepare(columns(["a", "b"] * 20, split=parts), _by("given"))

        assert [len(data.parts[name]) for name in PART_NAMES] == [20, 12, 8]
        assert data.division.test.tolist() == list(range(32, 40))

    def test_a_split_by_time_trains_on_the_past(self) -> None:
        data = prepare(columns(["a", "b"] * 20, split=np.arange(40)[::-1].copy()), _by("time"))

        assert data.division.validation.tolist() == list(range(8))

    def test_nothing_left_to_train_on(self) -> None:
        parts = np.array(["test"] * 40, dtype=object)
        with pytest.raises(TooFewRows):
            prepare(columns(["a", "b"] * 20, split=parts), _by("given"))


def _by(method: str) -> EffectiveSpec:
    raw = effective("iris").model_dump(mode="json")
    raw["data"]["split"] |= {"method": method, "column": "part"}
    return EffectiveSpec.model_validate(raw)


class TestTargets:
    def test_regression_targets_are_standardised_on_the_training_part(self) -> None:
        given = columns(np.random.default_rng(2).normal(150, 80, 40).tolist())

        data = prepare(given, REGRESSION, np.float64)

        train = given.y[data.division.train]
        assert data.target is not None
        assert_allclose([data.target.mean[0], data.target.scale[0]], [train.mean(), train.std()], rtol=1e-12)
        assert_allclose(data.parts["train"].y.mean(), 0, atol=1e-12)
        assert data.parts["test"].y.shape == (10, 1)
        assert data.yardsticks["test"].unit == data.unit == data.target.scale[0]
        assert data.class_rows is None

    def test_classes_are_places_in_the_vocabulary(self) -> None:
        given = columns(["pine tree", "oak"] * 20)

        data = prepare(given, CLASSES)

        assert data.vocabulary is not None
        assert data.vocabulary.labels == ("oak", "pine tree")
        assert data.output_units == 2
        assert data.class_rows is not None
        assert data.class_rows.tolist() == [10, 10]
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
