"""Whether a table has the columns that a spec names, of kinds that their use takes.

The same is checked when a job is submitted; here it guards a trainer against a table that is not the one it was
submitted with.
"""

from app.spec.job import EffectiveSpec
from app.spec.table import LABEL_LIMIT, Column, TableSchema
from app.tables.problems import InvalidTable, TableProblem


def check_columns(table: TableSchema, spec: EffectiveSpec) -> None:
    """Raise InvalidTable with every column that is missing or does not fit."""
    known = {column.name: column for column in table.columns}
    uses = [(name, _feature_problem) for name in spec.data.features]
    uses.append((spec.data.target, _number_problem if spec.task == "regression" else _class_problem))
    if spec.data.split.column is not None:
        uses.append((spec.data.split.column, _moment_problem if spec.data.split.method == "time" else _single))
    problems = []
    for name, check in uses:
        column = known.get(name)
        found = TableProblem(f"The table has no column '{name}'.", column=name) if column is None else check(column)
        if found is not None:
            problems.append(found)
    if problems:
        raise InvalidTable(problems)


def _feature_problem(column: Column) -> TableProblem | None:
    if column.kind == "time":
        return _problem(column, "is a date or a time, which cannot be a feature")
    if column.kind == "text" and column.labels is None:
        return _problem(column, f"is text with more than {LABEL_LIMIT} different values, or with very long ones")
    return None


def _number_problem(column: Column) -> TableProblem | None:
    if column.kind in ("text", "time"):
        row = column.first_text.row if column.first_text else None
        return TableProblem(f"Column '{column.name}' is text where numbers are needed.", row=row, column=column.name)
    return _single(column)


def _class_problem(column: Column) -> TableProblem | None:
    return _problem(column, "is a date or a time, not a class") if column.kind == "time" else _single(column)


def _moment_problem(column: Column) -> TableProblem | None:
    if column.kind in ("text", "boolean"):
        sentence = f"Column '{column.name}' is {column.kind}; rows are ordered by numbers, dates or ISO times."
        return TableProblem(sentence, "Write times as 2030-01-31 or 2030-01-31T08:00:00Z.", column=column.name)
    return _single(column)


def _single(column: Column) -> TableProblem | None:
    return None if column.shape is None else _problem(column, "holds arrays, where one value is needed")


def _problem(column: Column, what: str) -> TableProblem:
    return TableProblem(f"Column '{column.name}' {what}.", "Leave it out of the features.", column=column.name)
