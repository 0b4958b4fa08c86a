"""Which columns a job uses: the target, the features, and what is wrong with them."""

import json
from collections.abc import Iterable

from app.spec.job import JobSpec
from app.spec.nearest import nearest_word
from app.spec.problems import SpecProblem
from app.spec.table import LABEL_LIMIT, Column, TableSchema

_LISTED = 8  # names that one message lists
MOST_EXPLAINED = 20
"""Columns or classes that get a message of their own; a search for the nearest name goes with each."""

FEW_CLASSES = 20
"""Up to so many different values, text is taken for categories, whatever it looks like."""

_MOSTLY = 0.5  # from this share of number cells on, a text column is taken for numbers with bad cells


def find_target(spec: JobSpec, table: TableSchema) -> Column | SpecProblem:
    """Return the target column, or why there is none."""
    name = spec.data.target or table.default_target
    known = [column.name for column in table.columns]
    if name is None:
        sentence = f"The target is missing; name the column to predict, one of {some(known)}."
        return SpecProblem("/data/target", sentence, known[-1] if known else None)
    target = table.column(name)
    if target is None:
        return no_column("/data/target", name, known)
    return target


def find_features(spec: JobSpec, table: TableSchema, target: str | None) -> tuple[list[Column], list[SpecProblem]]:
    """Return the feature columns that exist, and every problem with them."""
    taken = {target: "is the target", spec.data.split.column: "divides the rows"}
    others = {column.name: column for column in table.columns if column.name not in taken}
    ready = _names_ready(others.values(), table.rows)
    if spec.data.features == "all":
        found = list(others.values())
        bad = [(column, why) for column in found if (why := _unfit(column, table.rows))]
        problems = [SpecProblem("/data/features", why, ready) for _, why in bad[:MOST_EXPLAINED]]
        return found, problems + _mixed(found, spec)
    found, problems = [], []
    for position, name in enumerate(spec.data.features):
        if len(problems) >= MOST_EXPLAINED:
            break
        where = f"/data/features/{position}"
        column = others.get(name)
        if name in taken:
            sentence = f"Column '{name}' {taken[name]}; it cannot be a feature too."
            problems.append(SpecProblem(where, sentence))
        elif column is None:
            problems.append(no_column(where, name, list(others)))
        else:
            found.append(column)
            why = _unfit(column, table.rows)
            problems += [SpecProblem(where, why, ready)] if why else []
    return found, problems + _mixed(found, spec)


def gap_problems(used: list[Column]) -> list[SpecProblem]:
    """Say which of the used columns have cells that no number can be read from."""
    advice = 'set missing to "drop" to leave such rows out, or to "impute" to fill the gaps of features.'
    spoilt = [(column.name, gaps) for column in used if (gaps := _gaps(column))]
    problems = [
        SpecProblem("/data/missing", f"Column '{name}' has {gaps}; {advice}", "drop")
        for name, gaps in spoilt[:MOST_EXPLAINED]
    ]
    if len(spoilt) > MOST_EXPLAINED:
        sentence = f"{len(spoilt) - MOST_EXPLAINED} more of the columns have gaps."
        problems.append(SpecProblem("/data/missing", sentence, "drop"))
    return problems


def empty_problems(features: list[Column], rows: int) -> list[SpecProblem]:
    """Say which features have nothing that their gaps could be filled from."""
    empty = [column for column in features if rows and column.missing + column.infinite == rows]
    return [
        SpecProblem("/data/features", f"Column '{column.name}' has no value in any row; leave it out of the features.")
        for column in empty[:MOST_EXPLAINED]
    ]


def spoilt_numbers(column: Column, rows: int) -> bool:
    """Tell a number column with a few bad cells from a column of names."""
    values = rows - column.missing
    return column.kind == "text" and column.distinct > FEW_CLASSES and column.texts <= (1 - _MOSTLY) * values


def no_column(where: str, name: str, known: list[str]) -> SpecProblem:
    """Say that the table has no column of that name, and which one was meant."""
    nearest = name.strip() if name.strip() in known else nearest_word(name, known) or _ignoring_case(name, known)
    advice = f"did you mean '{nearest}'?" if nearest else f"the columns are {some(known)}."
    return SpecProblem(where, f"There is no column '{name}'; {advice}", nearest)


def some(names: list[str]) -> str:
    """Write the first of the names, and how many more there are."""
    shown = ", ".join(f"'{name}'" for name in names[:_LISTED])
    return f"{shown} and {len(names) - _LISTED} more" if len(names) > _LISTED else shown


def _names_ready(columns: Iterable[Column], rows: int) -> str | None:
    """Write the list of columns that can be features, ready to be put into the spec; None when there is none."""
    names = [column.name for column in columns if column.shape is None and not _unfit(column, rows)]
    return json.dumps(names, ensure_ascii=False) if names else None


def _unfit(column: Column, rows: int) -> str | None:
    """Return why a column cannot be a feature."""
    if column.kind == "time":
        return f"Column '{column.name}' holds dates or times, which cannot be features; leave it out."
    if column.kind != "text":
        return None
    if spoilt_numbers(column, rows):
        cell = column.first_text
        more = f" ({column.texts:,} of its cells are not)" if column.texts > 1 else ""
        bad = (
            f"Row {cell.row}, column '{column.name}': '{cell.value}' is not"
            if cell
            else f"Column '{column.name}' is not"
        )
        return f"{bad} a number{more}. Correct the file, or leave the column out of the features."
    if column.distinct > LABEL_LIMIT:
        return (
            f"Column '{column.name}' is text with more than {LABEL_LIMIT:,} different values, too many for categories; "
            "leave it out of the features."
        )
    if column.labels is None:
        return f"Column '{column.name}' is text too long for categories; leave it out of the features."
    return None


def _mixed(features: list[Column], spec: JobSpec) -> list[SpecProblem]:
    """Refuse a column of arrays beside other features: together they have no shape."""
    arrays = [column for column in features if column.shape is not None]
    if not arrays or len(features) == 1:
        return []
    first = arrays[0]
    others = some([column.name for column in features if column is not first])
    holds = f"Column '{first.name}' holds arrays of shape {first.shape}"
    sentence = f"{holds}, so it must be the only feature; leave out {others}."
    where = "/data/features" if spec.data.features == "all" else f"/data/features/{features.index(first)}"
    return [SpecProblem(where, sentence, json.dumps([first.name], ensure_ascii=False))]


def _gaps(column: Column) -> str:
    """Count the gaps of a column in words: `9 missing values and 1 infinite value, the first in row 42`."""
    kinds = []
    if column.missing:
        kinds.append(f"{column.missing} missing {'value' if column.missing == 1 else 'values'}")
    if column.infinite:
        at = f", the first in row {column.first_infinite.row}" if column.first_infinite else ""
        kinds.append(f"{column.infinite} infinite {'value' if column.infinite == 1 else 'values'}{at}")
    return " and ".join(kinds)


def _ignoring_case(name: str, known: list[str]) -> str | None:
    return next((column for column in known if column.casefold() == name.strip().casefold()), None)
