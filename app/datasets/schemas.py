"""A data set on the wire: its table with the statistics of every column, and what may become a problem in training."""

from typing import Any, Final

from app.clock import to_rfc3339
from app.datasets.models import Dataset
from app.spec import TableSchema
from app.spec.columns import spoilt_numbers
from app.spec.table import Column
from app.tables import BUILTIN, builtin_schema, column_notes


def dataset_json(dataset: Dataset) -> dict[str, Any]:
    table = TableSchema.model_validate(dataset.table)
    return {**dataset_line(dataset), "table": table.model_dump(mode="json"), "problems": problems_of(table)}


def dataset_line(dataset: Dataset) -> dict[str, Any]:
    """A data set in a list: all but its table, which can have as much as megabytes."""
    return {
        "id": dataset.id,
        "object": "dataset",
        "name": dataset.name,
        "format": dataset.format,
        "state": dataset.state,
        "rows": dataset.rows,
        "size_bytes": dataset.size_bytes,
        "digest": dataset.digest,
        "uri": dataset.uri,
        "modified_at": None if dataset.modified_at is None else to_rfc3339(dataset.modified_at),
        "created_by": dataset.created_by,
        "created_at": to_rfc3339(dataset.created_at),
    }


def describe_builtin(name: str) -> dict[str, Any]:
    """A built-in set, by the name that `data.source` takes; KeyError when there is none of that name."""
    schema = builtin_schema(name)
    return {
        "id": name,
        "object": "dataset",
        "name": name,
        "format": "builtin",
        "description": BUILTIN[name].title,
        "rows": schema.rows,
        "default_target": schema.default_target,
        "default_task": schema.default_task,
        "table": schema.model_dump(mode="json"),
    }


def problems_of(table: TableSchema) -> list[dict[str, Any]]:
    """What a spec that uses these columns will meet. None of it is an error of the file, which was accepted.

    Of a table that was stored before problems were kept with it, what its columns tell by themselves.
    """
    notes = table.problems or [note for column in table.columns for note in column_notes(column, table.rows)]
    found = [note.model_dump(mode="json") for note in notes]
    found += [_spoilt(column) for column in table.columns if spoilt_numbers(column, table.rows)]
    return [problem | {"suggestion": _SUGGESTIONS.get(problem["code"])} for problem in found]


def _spoilt(column: Column) -> dict[str, Any]:
    cell = column.first_text
    row, value = (cell.row, cell.value) if cell else (None, "")
    more = f", and {column.texts - 1:,} more like it" if column.texts > 1 else ""
    message = f"Row {row}, column '{column.name}': '{value}' is not a number{more}, although most cells are numbers."
    return {"column": column.name, "code": "not_a_number", "count": column.texts, "row": row, "message": message}


_SUGGESTIONS: Final = {
    "missing": 'set data.missing to "drop" or "impute"',
    "infinite": 'set data.missing to "drop" or "impute"',
    "constant": "leave the column out of data.features",
    "all_different": "leave the column out of data.features",
    "rare_class": "add rows of these values, or leave them out",
    "too_many_categories": "leave the column out of data.features",
    "duplicate_rows": "remove repeated rows, so that none is in the training and in the validation part",
    "not_a_number": "correct the cells, or leave the column out of data.features",
}
