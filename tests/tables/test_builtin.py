"""The built-in sets are those of scikit-learn, value by value."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from sklearn import datasets

from app.spec.data import BUILTIN_NAMES
from app.tables import BUILTIN, builtin_schema, read_table

LOADERS: dict[str, Any] = {name: getattr(datasets, f"load_{name}") for name in BUILTIN_NAMES}


@pytest.mark.parametrize("name", BUILTIN_NAMES)
class TestEqual:
    def test_features_and_their_names(self, name: str) -> None:
        expected = LOADERS[name]()
        table = read_table(None, name)
        assert list(table.columns) == [*expected.feature_names, "target"]
        found = np.stack([table.columns[feature] for feature in expected.feature_names], axis=1)
        # The features of diabetes are scaled, there by scikit-learn and here by us: equal to rounding.
        np.testing.assert_allclose(found, expected.data, rtol=1e-12, atol=1e-16 if name == "diabetes" else 0)

    def test_target(self, name: str) -> None:
        np.testing.assert_array_equal(read_table(None, name).columns["target"], LOADERS[name]().target)

    def test_description_fits_the_values(self, name: str) -> None:
        table = read_table(None, name)
        schema = builtin_schema(name)
        assert schema == table.schema
        assert (schema.source_kind, schema.default_target) == ("builtin", "target")
        assert [column.name for column in schema.columns] == list(table.columns)
        for column in schema.columns:
            values = table.columns[column.name]
            assert len(values) == schema.rows
            assert column.distinct == len(np.unique(values))
            assert (column.minimum, column.maximum) == (values.min(), values.max())
            assert (column.kind == "integer") == (values.dtype == np.int64)
            assert column.missing == 0


class TestTask:
    def test_diabetes_is_regression_and_the_others_are_classification(self) -> None:
        assert {name: builtin.task for name, builtin in BUILTIN.items() if builtin.task == "regression"} == {
            "diabetes": "regression"
        }

    @pytest.mark.parametrize(("name", "classes"), [("digits", 10), ("iris", 3), ("wine", 3), ("breast_cancer", 2)])
    def test_classes_are_numbered_from_zero(self, name: str, classes: int) -> None:
        target = builtin_schema(name).column("target")
        assert target is not None
        assert target.labels == [str(index) for index in range(classes)]


class TestPictures:
    def test_digits_are_pictures_of_one_channel(self) -> None:
        # sklearn.datasets.load_digits().images has the shape (1797, 8, 8).
        assert {name: builtin_schema(name).image_shape for name in BUILTIN if builtin_schema(name).image_shape} == {
            "digits": [*datasets.load_digits().images.shape[1:], 1]
        }


class TestCache:
    def test_a_set_is_read_once(self) -> None:
        assert builtin_schema("wine") is builtin_schema("wine")

    def test_nobody_can_change_what_others_will_read(self) -> None:
        with pytest.raises(ValueError, match="read-only"):
            read_table(None, "wine").columns["hue"][0] = 0

    def test_scikit_learn_is_not_imported(self) -> None:
        code = "import sys, app.tables as t; t.builtin_schema('digits'); print('sklearn' in sys.modules)"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "False"
