"""The columns that a job trains on: typed as in the table, gaps refused, left out or kept for filling."""

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from app.spec.inputs import InputColumn, inputs_of
from app.spec.job import EffectiveSpec
from app.tables.checks import check_columns
from app.tables.problems import InvalidTable, TableProblem
from app.tables.table import Table, Values

Mask = NDArray[np.bool_]
Notice = tuple[str, str]

PART_WORDS: Final = ("train", "validation", "test")
_INFINITIES: Final = (math.inf, -math.inf)
_SHOWN_ROWS: Final = 5
_POLICIES: Final = 'Fill them in, or set data.missing to "drop" or "impute".'
_EVERY_ROW: Final = "Fill them in: the split needs a value in every row."


@dataclass(frozen=True, slots=True)
class Columns:
    """What a job trains on: the usable rows.

    `features`: raw values by name in the spec's order, typed as `Table` types them; with `missing: impute` they may
    have gaps (NaN or None; infinities count as gaps). `inputs`: how each of them enters the model. `y`: for
    classification the labels as in the file (objects: str, int or bool), for regression float64 (n). `row_numbers`: the
    row of each in the file. `dropped`: how many rows were left out for a gap, as `missing: drop` says. `split`: for a
    given split the part of each row (objects: train, validation, test), for a split by time what the rows are ordered
    by (int64 or float64), else None. `others`: the table's columns that are no features. `notices`: (code, sentence).
    """

    features: dict[str, Values]
    inputs: tuple[InputColumn, ...]
    y: NDArray[Any]
    row_numbers: NDArray[np.int64]
    dropped: int = 0
    split: NDArray[Any] | None = None
    others: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()


def features_and_target(table: Table, spec: EffectiveSpec) -> Columns:
    """Take the spec's columns from the table.

    Rows with a gap or an infinity in one of them are left out with `missing: drop`. With `impute` only rows without a
    target are: it is never made up. Raises InvalidTable when there are gaps and `missing` is `error`, for a gap in the
    split's column always, when none or one class alone is left, when a column is missing or of a kind that its use does
    not take, or when a given split has another word than train, validation and test.
    """
    check_columns(table.schema, spec)
    names, target = list(spec.data.features), spec.data.target
    if spec.data.split.column is not None:
        _refuse_gaps(table, {spec.data.split.column: _gaps(table.columns[spec.data.split.column])}, _EVERY_ROW)
    gaps = {name: _gaps(table.columns[name]) for name in (*names, target)}
    if spec.data.missing == "error":
        _refuse_gaps(table, gaps, _POLICIES)
    decisive = [target] if spec.data.missing == "impute" else [*names, target]
    kept = ~np.logical_or.reduce([gaps[name] for name in decisive])
    if not kept.any():
        sentence = f"No row is left: each has a gap or an infinite value in {_listed(decisive)}."
        raise InvalidTable([TableProblem(sentence, "Use fewer columns, or fill the gaps.")])
    left_out = int((~kept).sum())
    taken = _Taken(table, kept if left_out else None)
    y = taken.numbers(target) if spec.task == "regression" else _labels(taken.values(target))
    if spec.task == "classification":
        _require_classes(y, target, left_out)
    imputed = spec.data.missing == "impute"
    return Columns(
        features={name: taken.values(name) for name in names},
        inputs=tuple(inputs_of(spec.data, table.schema)),
        y=y,
        row_numbers=taken.rows,
        dropped=0 if imputed else left_out,
        split=_split_values(taken, spec),
        others=tuple(column.name for column in table.schema.columns if column.name not in set(names)),
        notices=tuple(_imputed(spec, gaps, kept)) if imputed else (),
    )


class _Taken:
    """The rows of a table that are used; no copy when that is all of them."""

    def __init__(self, table: Table, kept: Mask | None) -> None:
        self._table = table
        self._kept = kept
        self.rows = table.row_numbers if kept is None else table.row_numbers[kept]

    def values(self, name: str) -> Values:
        values = self._table.columns[name]
        return values if self._kept is None else values[self._kept]

    def numbers(self, name: str) -> NDArray[np.float64]:
        return self.values(name).astype(np.float64)


def _gaps(values: Values) -> Mask:
    """Which rows have no value: a gap or an infinity, in an array anywhere."""
    if values.dtype == object:
        return np.array([value is None or value in _INFINITIES for value in values], dtype=np.bool_)
    bad = np.isnat(values) if values.dtype.kind == "M" else ~np.isfinite(values)
    return np.asarray(bad.reshape(len(values), -1).any(axis=1))


def _refuse_gaps(table: Table, gaps: dict[str, Mask], advice: str) -> None:
    problems = []
    for name, bad in gaps.items():
        places = np.flatnonzero(bad)
        if not len(places):
            continue
        infinite = int(_infinite(table.columns[name][places]).sum())
        missing = len(places) - infinite
        counts = [f"{missing} missing"] * bool(missing) + [f"{infinite} infinite"] * bool(infinite)
        rows = table.row_numbers[places[:_SHOWN_ROWS]].tolist()
        more = f" and {len(places) - len(rows)} more" if len(places) > len(rows) else ""
        where = f"row{'' if len(places) == 1 else 's'} {', '.join(map(str, rows))}{more}"
        cells = "cell" if len(places) == 1 else "cells"
        sentence = f"Column '{name}' has {' and '.join(counts)} {cells}, in {where}."
        problems.append(TableProblem(sentence, advice, row=rows[0], column=name))
    if problems:
        raise InvalidTable(problems)


def _infinite(values: Values) -> Mask:
    if values.dtype == object:
        return np.array([value in _INFINITIES for value in values], dtype=np.bool_)
    if values.dtype.kind != "f":
        return np.zeros(len(values), dtype=np.bool_)
    return np.asarray(np.isinf(values).reshape(len(values), -1).any(axis=1))


def _imputed(spec: EffectiveSpec, gaps: dict[str, Mask], kept: Mask) -> list[Notice]:
    """Say which rows cannot be used although gaps are filled, and how many cells are filled."""
    notices: list[Notice] = []
    without = int((~kept).sum())
    if without:
        rows = f"{without} row{' has' if without == 1 else 's have'} no value in column '{spec.data.target}'"
        sentence = f"{rows} and {'is' if without == 1 else 'are'} not used: a target is never made up."
        notices.append(("rows_without_target", sentence))
    filled = {name: int((gaps[name] & kept).sum()) for name in spec.data.features}
    counts = [f"'{name}' ({count})" for name, count in filled.items() if count]
    if counts:
        more = f" and {len(counts) - _SHOWN_ROWS} more" if len(counts) > _SHOWN_ROWS else ""
        how = f"the {spec.data.preprocess.impute} or the most frequent value"
        where = f"column{'' if len(counts) == 1 else 's'} {', '.join(counts[:_SHOWN_ROWS])}{more}"
        notices.append(("values_imputed", f"Gaps are filled with {how} of the training part, in {where}."))
    return notices


def _split_values(taken: _Taken, spec: EffectiveSpec) -> NDArray[Any] | None:
    split = spec.data.split
    if split.column is None:
        return None
    values = taken.values(split.column)
    if split.method == "given":
        return _parts(values, split.column, taken.rows)
    if values.dtype.kind == "M":
        return values.astype(np.int64)
    return values.astype(np.float64) if values.dtype == object else values


def _parts(values: Values, name: str, rows: NDArray[np.int64]) -> Values:
    words = np.empty(len(values), dtype=object)
    words[:] = [str(value).strip().lower() for value in values]
    wrong = np.flatnonzero(~np.isin(words, PART_WORDS))
    if len(wrong):
        row = int(rows[wrong[0]])
        more = f" ({len(wrong)} rows have other words)" if len(wrong) > 1 else ""
        sentence = f"Row {row}, column '{name}': '{str(values[wrong[0]])[:80]}' is no part of a split{more}."
        raise InvalidTable([TableProblem(sentence, "Write train, validation or test.", row=row, column=name)])
    return words


def _require_classes(labels: Values, target: str, dropped: int) -> None:
    """Refuse one class alone: a model would be right about it without having learnt anything."""
    first = labels[0]
    if any(label != first for label in labels):
        return
    why = f" once the {dropped} rows with gaps are left out" if dropped else ""
    sentence = f"Column '{target}' has one class only ('{first}'){why}; classification needs at least two."
    advice = "Fill the gaps, or use other columns." if dropped else "Use a table with other classes too."
    raise InvalidTable([TableProblem(sentence, advice, column=target)])


def _labels(values: Values) -> Values:
    """Return labels as plain Python objects; whole numbers are int also when gaps had made the column float."""
    if values.dtype == object:
        return values
    labels = np.empty(len(values), dtype=object)
    labels[:] = [int(value) if float(value).is_integer() else float(value) for value in values.tolist()]
    return labels


def _listed(names: list[str]) -> str:
    return f"column '{names[0]}'" if len(names) == 1 else "a column that is used"
