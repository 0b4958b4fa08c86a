"""How columns become numbers."""

from typing import Any

from app.spec import Column, InputColumn, TableSchema, input_shape_of, inputs_of, parse_job, resolve
from tests.spec.bodies import UPLOADED, integer, number, table, text

FLAG = Column(name="flag", kind="boolean", missing=0, distinct=2, labels=["false", "true"])


def inputs(schema: TableSchema, features: Any = "all") -> list[InputColumn]:
    raw = {"framework": "torch", "model": "linear", "data": {"source": UPLOADED, "target": "y", "features": features}}
    return inputs_of(resolve(parse_job(raw), schema, "cpu").data, schema)


class TestInputs:
    def test_each_kind_has_its_encoding(self) -> None:
        found = inputs(table(number("x"), integer("n", 3), FLAG, text("wood"), integer("y", 2)))
        assert found == [
            InputColumn("x", "number", 1),
            InputColumn("n", "number", 1),
            InputColumn("flag", "boolean", 1),
            InputColumn("wood", "one_hot", 2, ("birch", "oak")),
        ]
        assert input_shape_of(found) == (5,)

    def test_they_follow_the_order_of_the_spec(self) -> None:
        found = inputs(table(number("x"), text("wood"), integer("y", 2)), ["wood", "x"])
        assert [column.name for column in found] == ["wood", "x"]

    def test_a_column_of_arrays_keeps_its_shape(self) -> None:
        found = inputs(table(number("x", shape=[4, 5]), integer("y", 2)))
        assert found == [InputColumn("x", "tensor", 20, shape=(4, 5))]
        assert input_shape_of(found) == (4, 5)

    def test_a_column_of_short_arrays_is_a_flat_row(self) -> None:
        assert input_shape_of(inputs(table(number("x", shape=[7]), integer("y", 2)))) == (7,)
