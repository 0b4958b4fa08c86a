"""A data set on the wire: its table with the statistics of every column, and what may become a problem in training."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from app.clock import to_rfc3339
from app.datasets.models import Dataset
from app.tables import BUILTIN, builtin_schema


def dataset_json(dataset: Dataset) -> dict[str, Any]:
    return {
        "id": dataset.id,
        "object": "dataset",
        "name": dataset.name,
        "format": dataset.format,
        "state": dataset.state,
        "rows": dataset.rows,
        "size_bytes": dataset.size_bytes,
        "digest": dataset.digest,
        "table": dataset.table,
        "problems": problems_of(dataset.table["columns"]),
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


def problems_of(columns: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a spec that uses these columns will meet. None of it is an error of the file, which was accepted."""
    return [
        {"column": column["name"], "message": sentence.format(**column), "suggestion": suggestion}
        for column in columns
        for applies, sentence, suggestion in _PROBLEMS
        if applies(column)
    ]


_Check = tuple[Callable[[dict[str, Any]], bool], str, str | None]
_PROBLEMS: Final[tuple[_Check, ...]] = (
    (
        lambda column: column["missing"] > 0,
        "Column '{name}' has empty cells, {missing} in all; such rows are refused unless the spec says to drop them.",
        '"missing": "drop"',
    ),
    (
        lambda column: column["infinite"] > 0,
        "Column '{name}' has infinite values, {infinite} in all; they are treated like empty cells.",
        '"missing": "drop"',
    ),
    (
        lambda column: column["kind"] == "text",
        "Column '{name}' is text; it can be the target of a classification, not a feature.",
        "list the other columns in data.features",
    ),
    (
        lambda column: column["distinct"] <= 1,
        "Column '{name}' has the same value in every row, so nothing can be learned from it.",
        None,
    ),
)
