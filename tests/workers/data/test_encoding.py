"""Raw columns as numbers, fitted to the training rows."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from app.spec.data import Preprocess
from app.spec.inputs import InputColumn, input_shape_of
from workers.data.encoding import Encoder

NUMBER = InputColumn("n", "number", 1)
FLAG = InputColumn("b", "boolean", 1)
TREE = InputColumn("t", "one_hot", 3, ("elm", "oak", "pine tree"))
PLAIN = Preprocess(numeric="none")


def objects(values: list[Any]) -> NDArray[Any]:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def fit(column: InputColumn, values: NDArray[Any], train: list[int] | None = None, **options: Any) -> Encoder:
    rows = np.arange(len(values)) if train is None else np.array(train)
    impute = options.pop("gaps", False)
    return Encoder.fit({column.name: values}, rows, [column], Preprocess(**options), impute=impute)


def encoded(encoder: Encoder, values: NDArray[Any]) -> list[list[float]]:
    found: list[list[float]] = encoder.apply({encoder.inputs[0].name: values}).tolist()
    return found


class TestNumbers:
    @given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=30), st.integers(1, 30))
    def test_scaling_is_scikit_learns_fitted_to_the_training_rows(self, values: list[int], count: int) -> None:
        column = np.array(values) / 1000
        train = list(range(min(count, len(values))))
        expected = StandardScaler().fit(column[train, None])

        encoder = fit(NUMBER, column, train)

        assert_allclose(encoder.apply({"n": column}), expected.transform(column[:, None]), atol=1e-9, rtol=1e-9)

    @pytest.mark.parametrize("how", ["mean", "median"])
    def test_gaps_are_filled_as_scikit_learn_fills_them_then_scaled(self, how: str) -> None:
        column = np.array([1.0, np.nan, 4.0, 10.0, np.nan, 7.0, 100.0])
        train = [0, 1, 2, 3]
        imputer = SimpleImputer(strategy=how).fit(column[train, None])
        scaler = StandardScaler().fit(imputer.transform(column[train, None]))

        encoder = fit(NUMBER, column, train, impute=how, gaps=True)

        expected = scaler.transform(imputer.transform(column[:, None]))
        assert_allclose(encoder.apply({"n": column}), expected, rtol=1e-12, atol=1e-12)

    def test_an_infinity_is_a_gap(self) -> None:
        assert encoded(fit(NUMBER, np.array([1.0, 3.0, np.inf]), numeric="none", gaps=True), np.array([-np.inf])) == [
            [2.0]
        ]

    def test_a_column_without_a_training_value_is_filled_with_zero(self) -> None:
        encoder = fit(NUMBER, np.array([np.nan, np.nan, 5.0]), [0, 1], gaps=True)

        assert encoded(encoder, np.array([np.nan, 5.0])) == [[0.0], [5.0]]

    @pytest.mark.parametrize("how", ["mean", "median"])
    def test_values_that_a_sum_would_overflow(self, how: str) -> None:
        encoder = fit(NUMBER, np.array([1.5e308, 1.7e308, np.nan]), impute=how, numeric="none", gaps=True)

        assert encoded(encoder, np.array([np.nan]))[0][0] == pytest.approx(1.6e308)

    def test_whole_numbers_without_scaling_stay_exact(self) -> None:
        ids = np.array([0, 7, 2**53])

        assert encoded(fit(NUMBER, ids, numeric="none"), ids) == [[0.0], [7.0], [2.0**53]]

    def test_numbers_in_objects_are_numbers(self) -> None:
        values = objects([2**53 + 2, None, 4])

        assert encoded(fit(NUMBER, values, numeric="none", gaps=True, impute="median"), values)[1] == [(2**53 + 6) / 2]


class TestBooleans:
    def test_true_is_one_and_false_is_zero_and_nothing_is_scaled(self) -> None:
        values = objects([True, False, True])

        assert encoded(fit(FLAG, values), values) == [[1.0], [0.0], [1.0]]

    @pytest.mark.parametrize(
        ("train", "fill"),
        [([True, True, False], 1.0), ([True, False, False], 0.0), ([True, False], 0.0), ([None], 0.0)],
    )
    def test_a_gap_is_what_is_more_frequent(self, train: list[bool | None], fill: float) -> None:
        encoder = fit(FLAG, objects(train), gaps=True)

        assert encoded(encoder, objects([None, True])) == [[fill], [1.0]]


class TestCategories:
    def test_equals_scikit_learns_one_hot(self) -> None:
        values = objects(["oak", "elm", "pine tree", "oak"])
        expected = OneHotEncoder(sparse_output=False).fit_transform(values[:, None])

        assert encoded(fit(TREE, values), values) == expected.tolist()

    def test_a_category_that_the_training_rows_do_not_have_is_zeros(self) -> None:
        values = objects(["oak", "oak", "elm", "birch"])

        encoder = fit(TREE, values, [0, 1])

        assert encoded(encoder, values) == [[0, 1, 0], [0, 1, 0], [0, 0, 0], [0, 0, 0]]

    def test_a_gap_is_the_most_frequent_of_the_training_rows(self) -> None:
        values = objects(["elm", "oak", "oak", None, "elm", "elm"])

        encoder = fit(TREE, values, [0, 1, 2, 3], gaps=True)

        assert encoded(encoder, objects([None])) == [[0, 1, 0]]

    def test_of_equals_it_is_the_first(self) -> None:
        assert encoded(fit(TREE, objects(["oak", "elm"]), gaps=True), objects([None])) == [[1, 0, 0]]


class TestArrays:
    TENSOR = InputColumn("x", "tensor", 6, shape=(2, 3))

    def test_each_number_has_its_own_statistics(self) -> None:
        values = np.random.default_rng(0).normal(5, 2, (9, 2, 3))
        flat = values.reshape(9, 6)
        expected = StandardScaler().fit(flat[:5]).transform(flat)

        encoder = fit(self.TENSOR, values, [0, 1, 2, 3, 4])

        assert_allclose(encoder.apply({"x": values}), expected, rtol=1e-12)
        assert (encoder.width, encoder.input_shape) == (6, (2, 3))

    def test_gaps_inside_are_filled_number_by_number(self) -> None:
        values = np.arange(12.0).reshape(2, 2, 3)
        values[1, 0, 0] = np.nan

        encoder = fit(self.TENSOR, values, numeric="none", gaps=True)

        assert encoder.apply({"x": values})[1, 0] == 0.0

    def test_beside_other_columns_it_lies_flat(self) -> None:
        inputs = [self.TENSOR, NUMBER]
        columns = {"x": np.zeros((3, 2, 3)), "n": np.arange(3.0)}

        encoder = Encoder.fit(columns, np.arange(3), inputs, PLAIN)

        assert encoder.input_shape == (7,) == input_shape_of(inputs)
        assert encoder.apply(columns)[:, 6].tolist() == [0, 1, 2]


class TestEncoder:
    @pytest.fixture
    def columns(self) -> dict[str, NDArray[Any]]:
        return {
            "n": np.array([1.5, np.nan, 3.5, 0.1]),
            "b": objects([True, None, False, True]),
            "t": objects(["oak", "elm", None, "oak"]),
        }

    def test_columns_come_in_the_order_of_the_inputs(self, columns: dict[str, NDArray[Any]]) -> None:
        encoder = Encoder.fit(columns, np.arange(4), [TREE, NUMBER, FLAG], PLAIN, impute=True)

        assert encoder.apply(columns)[0].tolist() == [0, 1, 0, 1.5, 1]
        assert (encoder.width, encoder.input_shape) == (5, (5,))

    @pytest.mark.parametrize("impute", [False, True])
    def test_json_keeps_it_to_the_last_bit(self, columns: dict[str, NDArray[Any]], *, impute: bool) -> None:
        inputs = [NUMBER, FLAG, TREE, InputColumn("x", "tensor", 2, shape=(2,))]
        columns |= {"x": np.random.default_rng(1).normal(size=(4, 2))}
        rows = np.arange(4) if impute else np.array([0, 3])
        encoder = Encoder.fit(columns, rows, inputs, Preprocess(), impute=impute, others=["y"])

        again = Encoder.from_json(json.loads(json.dumps(encoder.to_json())))

        np.testing.assert_array_equal(again.apply(columns), encoder.apply(columns))
        assert (again.impute, again.others, again.input_shape) == (impute, ("y",), encoder.input_shape)
        assert again.to_json() == encoder.to_json()

    def test_another_format_is_refused(self) -> None:
        with pytest.raises(ValueError, match="format 2 is not known"):
            Encoder.from_json({"format": 2, "inputs": [], "impute": False, "others": []})

    def test_rows_are_encoded_one_by_one_as_together(self, columns: dict[str, NDArray[Any]]) -> None:
        encoder = Encoder.fit(columns, np.arange(4), [NUMBER, FLAG, TREE], Preprocess(), impute=True)
        one_by_one = [
            encoder.apply({name: values[row : row + 1] for name, values in columns.items()}) for row in range(4)
        ]

        np.testing.assert_array_equal(np.concatenate(one_by_one), encoder.apply(columns))
