"""Which columns a job uses: the target, the features, and what is wrong with them."""

import json

from app.spec.job import JobSpec
from app.spec.nearest import nearest_word
from app.spec.problems import SpecProblem
from app.spec.table import Column, TableSchema

_LISTED = 8  # names that one message lists
_EXPLAINED = 20  # text columns that get a message each when all columns are features


def find_target(spec: JobSpec, table: TableSchema) -> Column | SpecProblem:
    """Return the target column, or why there is none."""
    name = spec.data.target or table.default_target
    known = [column.name for column in table.columns]
    if name is None:
        sentence = f"The target is missing; name the column to predict, one of {_some(known)}."
        return SpecProblem("/data/target", sentence, known[-1] if known else None)
    target = table.column(name)
    if target is None:
        return _no_column("/data/target", name, known)
    return target


def find_features(spec: JobSpec, table: TableSchema, target: str | None) -> tuple[list[Column], list[SpecProblem]]:
    """Return the feature columns that exist, and every problem with them."""
    others = {column.name: column for column in table.columns if column.name != target}
    ready = names_ready(table, target)
    if spec.data.features == "all":
        texts = [column for column in others.values() if column.kind == "text"]
        return list(others.values()), [_text_problem("/data/features", column, ready) for column in texts[:_EXPLAINED]]
    found: list[Column] = []
    problems: list[SpecProblem] = []
    for position, name in enumerate(spec.data.features):
        where = f"/data/features/{position}"
        column = others.get(name)
        if name == target:
            problems.append(SpecProblem(where, f"Column '{name}' is the target; it cannot be a feature too."))
        elif column is None:
            problems.append(_no_column(where, name, list(others)))
        else:
            found.append(column)
            if column.kind == "text":
                problems.append(_text_problem(where, column, ready))
    return found, problems


def names_ready(table: TableSchema, target: str | None) -> str | None:
    """Write the list of columns that can be features, ready to be put into the spec; None when there is none."""
    names = [column.name for column in table.columns if column.kind != "text" and column.name != target]
    return json.dumps(names, ensure_ascii=False) if names else None


def gap_problems(used: list[Column]) -> list[SpecProblem]:
    """Say which of the used columns have cells that no number can be read from."""
    problems = []
    for column in used:
        kinds = []
        if column.missing:
            kinds.append(f"{column.missing} missing {'value' if column.missing == 1 else 'values'}")
        if column.infinite:
            at = f", the first in row {column.first_infinite.row}" if column.first_infinite else ""
            kinds.append(f"{column.infinite} infinite {'value' if column.infinite == 1 else 'values'}{at}")
        if kinds:
            sentence = (
                f"Column '{column.name}' has {' and '.join(kinds)}; set missing to \"drop\" to leave such rows out."
            )
            problems.append(SpecProblem("/data/missing", sentence, "drop"))
    return problems


def _text_problem(where: str, column: Column, ready: str | None) -> SpecProblem:
    sentence = f"Column '{column.name}' is text."
    if column.first_text is not None:
        cell = column.first_text
        more = f" ({column.texts:,} of its cells are not)" if column.texts > 1 else ""
        sentence = f"Row {cell.row}, column '{column.name}': '{cell.value}' is not a number{more}."
    return SpecProblem(where, f"{sentence} Features must be numbers; text features come later.", ready)


def _no_column(where: str, name: str, known: list[str]) -> SpecProblem:
    nearest = name.strip() if name.strip() in known else nearest_word(name, known) or _ignoring_case(name, known)
    advice = f"did you mean '{nearest}'?" if nearest else f"the columns are {_some(known)}."
    return SpecProblem(where, f"There is no column '{name}'; {advice}", nearest)


def _ignoring_case(name: str, known: list[str]) -> str | None:
    return next((column for column in known if column.casefold() == name.strip().casefold()), None)


def _some(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:_LISTED])
    return f"{shown} and {len(names) - _LISTED} more" if len(names) > _LISTED else shown
