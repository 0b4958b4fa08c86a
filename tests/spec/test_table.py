"""The description of a table, as stored with a dataset."""

from app.spec import CellAt, TableSchema
from tests.spec.bodies import integer, number, table, text


class TestTableSchema:
    def test_json_and_back_is_the_same(self) -> None:
        schema = table(number("x", infinite=1, first_infinite=CellAt(row=3, value="inf")), integer("n", 3), text("y"))
        assert TableSchema.model_validate_json(schema.model_dump_json()) == schema

    def test_a_column_is_found_by_its_name(self) -> None:
        schema = table(number("x"), text("y"))
        assert schema.column("y") == text("y")
        assert schema.column("z") is None
