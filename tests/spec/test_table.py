"""The description of a table, as stored with a dataset."""

from app.spec import CellAt, DataNote, TableSchema
from tests.spec.bodies import integer, number, table, text


class TestTableSchema:
    def test_json_and_back_is_the_same(self) -> None:
        schema = table(number("x", infinite=1, first_infinite=CellAt(row=3, value="inf")), integer("n", 3), text("y"))
        assert TableSchema.model_validate_json(schema.model_dump_json()) == schema

    def test_notes_shapes_and_counts_are_kept(self) -> None:
        note = DataNote(
            column="x", code="constant", count=100, row=2, message="Column 'x' has the same value in every row."
        )
        columns = [number("x", shape=[3, 2]), text("y", counts=[60, 40])]
        schema = TableSchema(source_kind="npz", rows=100, columns=columns, image_shape=[3, 2, 1], problems=[note])
        assert TableSchema.model_validate_json(schema.model_dump_json()) == schema

    def test_a_column_is_found_by_its_name(self) -> None:
        schema = table(number("x"), text("y"))
        assert schema.column("y") == text("y")
        assert schema.column("z") is None
