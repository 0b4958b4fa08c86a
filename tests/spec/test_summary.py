"""Exact numbers before a job runs; parameter counts by the closed form (inputs + 1) * units per dense layer."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.spec import LayerShape, Summary, TableSchema, parse_job, resolve, summarise
from tests.spec.bodies import UPLOADED, integer, number, table, text


def summary(model: Any, schema: TableSchema, *, data: dict[str, Any] | None = None, **hyper: Any) -> Summary:
    raw = {
        "framework": "torch",
        "model": model,
        "data": {"source": UPLOADED, "target": "y", **(data or {})},
        "hyperparameters": hyper,
    }
    return summarise(resolve(parse_job(raw), schema, "cpu"), schema)


def classes(features: int, count: int, rows: int = 100) -> TableSchema:
    return table(*(number(f"f{i}") for i in range(features)), integer("y", count), rows=rows)


def memory(model: Any = "linear", **hyper: Any) -> int:
    """Bytes for a table of three features and five classes."""
    found = summary(model, classes(3, 5), **hyper).memory_bytes
    assert found is not None
    return found


class TestLayers:
    def test_shapes_and_parameters_follow_the_layers(self) -> None:
        found = summary({"type": "mlp", "hidden": [8, 4], "dropout": 0.5}, classes(3, 5))
        assert found.layers == [
            LayerShape(name="dense_1", type="dense", output_shape=[8], parameters=(3 + 1) * 8),
            LayerShape(name="activation_1", type="activation", output_shape=[8], parameters=0),
            LayerShape(name="dropout_1", type="dropout", output_shape=[8], parameters=0),
            LayerShape(name="dense_2", type="dense", output_shape=[4], parameters=(8 + 1) * 4),
            LayerShape(name="activation_2", type="activation", output_shape=[4], parameters=0),
            LayerShape(name="dropout_2", type="dropout", output_shape=[4], parameters=0),
            LayerShape(name="output", type="dense", output_shape=[5], parameters=(4 + 1) * 5),
        ]
        assert found.parameter_count == 32 + 36 + 25

    def test_regression_has_one_output(self) -> None:
        found = summary("linear", table(number("a"), number("b"), number("y")))
        assert found.layers == [LayerShape(name="output", type="dense", output_shape=[1], parameters=3)]

    @given(st.integers(1, 40), st.lists(st.integers(1, 300), min_size=1, max_size=5), st.integers(2, 20))
    def test_the_parameter_count_is_the_closed_form(self, inputs: int, hidden: list[int], outputs: int) -> None:
        widths = [inputs, *hidden, outputs]
        expected = sum((before + 1) * after for before, after in pairwise(widths))
        assert summary({"type": "mlp", "hidden": hidden}, classes(inputs, outputs)).parameter_count == expected


class TestRows:
    def test_rows_of_each_part_and_steps_of_an_epoch(self) -> None:
        found = summary(
            "linear", classes(2, 2, rows=1000), data={"split": {"validation": 0.2, "test": 0.1}}, batch_size=64
        )
        assert (found.train_rows, found.validation_rows, found.test_rows) == (700, 200, 100)
        assert found.steps_per_epoch == 11  # 10 full batches and one of 60

    @pytest.mark.parametrize(("batch", "steps"), [(1, 80), (16, 5), (79, 2), (80, 1), (10_000, 1)])
    def test_the_last_batch_may_be_smaller(self, batch: int, steps: int) -> None:
        assert summary("linear", classes(2, 2), batch_size=batch).steps_per_epoch == steps

    def test_rows_with_gaps_in_one_column_are_left_out(self) -> None:
        schema = table(number("a", missing=10), number("b"), integer("y", 2), rows=110)
        found = summary("linear", schema, data={"missing": "drop"})
        assert (found.train_rows, found.validation_rows) == (80, 20)

    def test_gaps_in_several_columns_are_counted_as_if_they_shared_rows(self) -> None:
        schema = table(number("a", missing=10), number("b", missing=4, infinite=1), integer("y", 2), rows=110)
        assert summary("linear", schema, data={"missing": "drop"}).train_rows == 80

    def test_gaps_in_other_columns_do_not_count(self) -> None:
        schema = table(number("a", missing=10), number("b"), integer("y", 2), rows=100)
        assert summary("linear", schema, data={"features": ["b"]}).train_rows == 80


class TestMemory:
    def test_it_counts_weights_gradients_optimizer_activations_and_data(self) -> None:
        # 3 inputs, 5 classes: 20 parameters; Adam keeps two numbers for each, beside weight and gradient.
        # Batch 10 of 5 outputs, forward and backward; 100 rows of 3 features and a target. 4 bytes each.
        found = summary("linear", classes(3, 5), batch_size=10)
        assert found.memory_bytes == 4 * (20 * 4 + 2 * 10 * 5 + 100 * 4)

    def test_plain_descent_keeps_nothing_and_momentum_one_number(self) -> None:
        adam = memory(optimizer="adam")
        momentum = memory(optimizer={"name": "sgd", "momentum": 0.9})
        plain = memory(optimizer="sgd")
        assert (adam - momentum, momentum - plain) == (4 * 20, 4 * 20)

    def test_a_batch_larger_than_the_training_part_needs_no_more(self) -> None:
        assert (
            summary("linear", classes(3, 5), batch_size=80).memory_bytes
            == summary("linear", classes(3, 5), batch_size=1000).memory_bytes
        )

    @pytest.mark.parametrize(
        ("optimizer", "numbers"),
        [("adamw", 2), ("rmsprop", 1), ({"name": "rmsprop", "momentum": 0.5}, 2), ("adagrad", 1)],
    )
    def test_each_optimizer_keeps_its_numbers(self, optimizer: Any, numbers: int) -> None:
        # torch's state per parameter: exp_avg and exp_avg_sq; square_avg and momentum_buffer; sum.
        assert memory(optimizer=optimizer) - memory(optimizer="sgd") == 4 * 20 * numbers

    def test_moving_statistics_need_memory_but_are_no_parameters(self) -> None:
        norm = {"type": "sequential", "layers": [{"type": "batch_norm"}]}
        layer = {"type": "sequential", "layers": [{"type": "layer_norm"}]}
        one, other = (summary(model, classes(3, 5), optimizer="sgd") for model in (norm, layer))
        assert one.parameter_count == other.parameter_count == 2 * 3 + 20
        assert memory(norm, optimizer="sgd") - memory(layer, optimizer="sgd") == 4 * 2 * 3


class TestInput:
    def test_it_is_the_encoded_row(self) -> None:
        schema = table(number("x"), text("wood"), integer("y", 2))
        assert summary("linear", schema).input_shape == [3]


class TestJson:
    def test_json_and_back_is_the_same(self) -> None:
        found = summary("mlp", classes(3, 5))
        assert Summary.model_validate_json(found.model_dump_json()) == found
