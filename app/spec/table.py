"""What is known about a table before training: its columns, stored with the dataset and used to check a spec."""

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from app.spec.job import Task

ColumnKind: TypeAlias = Literal["number", "integer", "text", "boolean"]
LABEL_LIMIT = 1000


class CellAt(BaseModel):
    """One cell: its row in the file (the header is row 1) and its text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    row: int
    value: str


class Column(BaseModel):
    """One column over the whole file.

    `kind`: `integer` when every value is a whole number (1 and 1.0 are the same value), `number` when every value is a
    number, `boolean` when every value is true or false, else `text`. `texts` counts the cells of a text column that are
    not numbers and `first_text` is the first of them, so that a message can point at it. `infinite` counts infinities;
    they are in no other statistic and are treated like gaps.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: ColumnKind
    missing: int = Field(ge=0, description="Cells that are empty, NaN, NA or null.")
    distinct: int = Field(ge=0, le=LABEL_LIMIT + 1, description="Different values; 1001 means more than 1000.")
    labels: list[str] | None = Field(
        default=None, description="The different values in order, when there are at most 1000 and they can be classes."
    )
    minimum: float | None = None
    maximum: float | None = None
    infinite: int = Field(default=0, ge=0)
    first_infinite: CellAt | None = None
    texts: int = Field(default=0, ge=0)
    first_text: CellAt | None = None


class TableSchema(BaseModel):
    """A table's columns and size; JSON-able, stored with the dataset."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    source_kind: Literal["builtin", "csv"]
    rows: int = Field(ge=0)
    columns: list[Column]
    default_target: str | None = None
    default_task: Task | None = None

    def column(self, name: str) -> Column | None:
        """Return the column of that name, or None."""
        return next((column for column in self.columns if column.name == name), None)
