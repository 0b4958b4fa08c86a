"""What is known about a table before training: its columns, stored with the dataset and used to check a spec."""

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from app.spec.job import Task

ColumnKind: TypeAlias = Literal["number", "integer", "text", "boolean", "time"]
SourceKind: TypeAlias = Literal["builtin", "csv", "parquet", "npz"]
NoteCode: TypeAlias = Literal[
    "missing", "infinite", "constant", "all_different", "rare_class", "too_many_categories", "duplicate_rows"
]
LABEL_LIMIT = 1000


class CellAt(BaseModel):
    """One cell: its row in the file (the header is row 1) and its text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    row: int
    value: str


class DataNote(BaseModel):
    """Something about a dataset that its user should know before training on it; no reason to refuse the file.

    `column`: None for the whole table. `count`: cells, rows or values that it is about. `row`: the first of them.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: str | None = None
    code: NoteCode
    count: int = Field(ge=0)
    row: int | None = None
    message: str


class Column(BaseModel):
    """One column over the whole file.

    `kind`: `integer` when every value is a whole number (1 and 1.0 are the same value), `number` when every value is a
    number, `boolean` when every value is true or false, `time` when every value is a date or a time, else `text`.
    `shape`: of each row's value in a column of arrays (kind `number` or `integer`), None for single values.
    `texts` counts the cells of a text column that are not numbers and `first_text` is the first of them, so that a
    message can point at it. `infinite` counts infinities; they are in no other statistic and are treated like gaps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: ColumnKind
    missing: int = Field(ge=0, description="Cells that are empty, NaN, NA or null.")
    distinct: int = Field(ge=0, le=LABEL_LIMIT + 1, description="Different values; 1001 means more than 1000.")
    labels: list[str] | None = Field(
        default=None, description="The different values in order, when there are at most 1000 and they can be classes."
    )
    counts: list[int] | None = Field(default=None, description="The rows of each label, in the same order.")
    minimum: float | None = None
    maximum: float | None = None
    infinite: int = Field(default=0, ge=0)
    first_infinite: CellAt | None = None
    texts: int = Field(default=0, ge=0)
    first_text: CellAt | None = None
    shape: list[int] | None = None


class TableSchema(BaseModel):
    """A table's columns and size; JSON-able, stored with the dataset.

    `image_shape`: [height, width, channels] when all features together are the pixels of one picture.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    source_kind: SourceKind
    rows: int = Field(ge=0)
    columns: list[Column]
    default_target: str | None = None
    default_task: Task | None = None
    image_shape: list[int] | None = None
    problems: list[DataNote] = []

    def column(self, name: str) -> Column | None:
        """Return the column of that name, or None."""
        return next((column for column in self.columns if column.name == name), None)
