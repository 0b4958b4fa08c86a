"""The columns that a job trains on: numbers in, labels out, gaps refused or left out."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.spec.job import EffectiveSpec
from app.tables.problems import InvalidTable, TableProblem
from app.tables.table import Table, Values

_INFINITIES = (math.inf, -math.inf)


@dataclass(frozen=True, slots=True)
class Columns:
    """What a job trains on.

    `x`: features in the spec's order, float64 (n, d); false is 0, true is 1. `y`: for classification the labels as in
    the file (objects: str, int or bool), for regression float64 (n). `row_numbers`: the row of each in the file.
    `dropped`: how many rows were left out for a gap.
    """

    x: NDArray[np.float64]
    y: NDArray[Any]
    row_numbers: NDArray[np.int64]
    dropped: int


def features_and_target(table: Table, spec: EffectiveSpec) -> Columns:
    """Take the spec's columns from the table.

    Rows with a gap or an infinity in one of them are left out with `missing: drop`. Raises InvalidTable when there are
    such rows and `missing` is `error`, when none or one class alone is left, or when a column is missing or is text.
    """
    _check_columns(table, spec)
    names = spec.data.features
    x = np.stack([_numbers(table.columns[name]) for name in names], axis=1)
    target = table.columns[spec.data.target]
    bad = ~np.isfinite(x)
    bad_target = _gaps(target)
    if spec.data.missing == "error":
        _refuse_gaps([*names, spec.data.target], [*bad.T, bad_target], table.row_numbers)
    kept = ~(bad.any(axis=1) | bad_target)
    if not kept.any():
        sentence = "No row is left: each has a gap or an infinite value in a column that is used."
        raise InvalidTable([TableProblem(sentence, "Use fewer columns, or fill the gaps.")])
    dropped = int((~kept).sum())
    if dropped:
        x, target = x[kept], target[kept]
    if spec.task == "regression":
        return Columns(x, _numbers(target), table.row_numbers[kept], dropped)
    labels = _labels(target)
    _require_classes(labels, spec.data.target, dropped)
    return Columns(x, labels, table.row_numbers[kept], dropped)


def _check_columns(table: Table, spec: EffectiveSpec) -> None:
    problems = []
    known = {column.name: column for column in table.schema.columns}
    for name in (*spec.data.features, spec.data.target):
        column = known.get(name)
        if column is None:
            problems.append(TableProblem(f"The table has no column '{name}'.", column=name))
        elif column.kind == "text" and (name != spec.data.target or spec.task == "regression"):
            row = column.first_text.row if column.first_text else None
            sentence = f"Column '{name}' is text where numbers are needed."
            problems.append(TableProblem(sentence, "Leave it out of the features.", row=row, column=name))
    if problems:
        raise InvalidTable(problems)


def _refuse_gaps(names: list[str], gaps: list[NDArray[np.bool_]], rows: NDArray[np.int64]) -> None:
    problems = []
    for name, bad in zip(names, gaps, strict=True):
        count = int(bad.sum())
        if count:
            row = int(rows[np.argmax(bad)])
            sentence = f"Column '{name}' has {count} missing or infinite cells, the first in row {row}."
            problems.append(TableProblem(sentence, 'Fill them, or set missing to "drop".', row=row, column=name))
    if problems:
        raise InvalidTable(problems)


def _require_classes(labels: Values, target: str, dropped: int) -> None:
    """Refuse one class alone: a model would be right about it without having learnt anything."""
    first = labels[0]
    if any(label != first for label in labels):
        return
    why = f" once the {dropped} rows with gaps are left out" if dropped else ""
    sentence = f"Column '{target}' has one class only ('{first}'){why}; classification needs at least two."
    advice = "Fill the gaps, or use other columns." if dropped else "Use a table with other classes too."
    raise InvalidTable([TableProblem(sentence, advice, column=target)])


def _numbers(values: Values) -> NDArray[np.float64]:
    return values.astype(np.float64)  # None becomes NaN


def _gaps(values: Values) -> NDArray[np.bool_]:
    if values.dtype == object:
        return np.array([value is None or value in _INFINITIES for value in values], dtype=np.bool_)
    return ~np.isfinite(values)


def _labels(values: Values) -> Values:
    """Return labels as plain Python objects; whole numbers are int also when gaps had made the column float."""
    if values.dtype == object:
        return values
    labels = np.empty(len(values), dtype=object)
    labels[:] = [int(value) if float(value).is_integer() else float(value) for value in values.tolist()]
    return labels
