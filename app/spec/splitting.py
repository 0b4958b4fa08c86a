"""What is wrong with dividing the rows as the spec says."""

from typing import Final

from app.spec.columns import no_column
from app.spec.data import BY_COLUMN, EffectiveSplit, Split
from app.spec.job import JobSpec, Task
from app.spec.nearest import nearest_word
from app.spec.problems import SpecProblem
from app.spec.table import Column, TableSchema

PART_NAMES: Final = ("train", "validation", "test")
"""What the column of a given split holds, in any case."""

_WHERE: Final = "/data/split/column"


def check_split(spec: JobSpec, table: TableSchema, target: Column, task: Task) -> list[SpecProblem]:
    """Say what is wrong with the method of the split, and with the column that it looks at."""
    split = spec.data.split
    if split.method == "stratified" and task == "regression":
        sentence = "A stratified split needs classes; regression has none. Use random or auto."
        return [SpecProblem("/data/split/method", sentence, "random")]
    if split.method not in BY_COLUMN or split.column is None:
        return []
    if split.column == target.name:
        return [SpecProblem(_WHERE, f"Column '{target.name}' is the target; it cannot divide the rows too.")]
    column = table.column(split.column)
    if column is None:
        others = [each.name for each in table.columns if each.name != target.name]
        return [no_column(_WHERE, split.column, others)]
    problem = _given(column) if split.method == "given" else _ordered(column)
    gaps = column.missing + column.infinite
    if problem is None and gaps:
        cells = "1 missing value" if gaps == 1 else f"{gaps} missing values"
        problem = f"Column '{column.name}' has {cells}; the split needs a value in every row."
    if isinstance(problem, SpecProblem):
        return [problem]
    return [SpecProblem(_WHERE, problem)] if problem else []


def has_validation(split: Split | EffectiveSplit, table: TableSchema) -> bool:
    """Tell whether there is a validation part."""
    if split.method != "given":
        return split.validation > 0
    column = table.column(split.column or "")
    labels = column.labels if column is not None else None
    return any(part_named(label) == "validation" for label in labels or ())


def _given(column: Column) -> SpecProblem | str | None:
    labels = column.labels if column.kind == "text" else None
    if labels is None:
        return f"Column '{column.name}' must hold train, validation or test in every row."
    for label in labels:
        if part_named(label) not in PART_NAMES:
            nearest = nearest_word(label, PART_NAMES, cutoff=0.4)
            advice = f"write {nearest} instead" if nearest else "only train, validation and test are known"
            return f"Column '{column.name}' holds '{label}', which is no part of a split; {advice}."
    if "train" not in map(part_named, labels):
        return f"Column '{column.name}' has no row with train; nothing is left to train on."
    return None


def _ordered(column: Column) -> str | None:
    if column.kind in ("number", "integer", "time") and column.shape is None:
        return None
    cell = column.first_text
    where = f", for example '{cell.value}' in row {cell.row}" if cell else ""
    return (
        f"Column '{column.name}' cannot order the rows in time: it must hold numbers, dates or ISO times, "
        f"and holds {'true and false' if column.kind == 'boolean' else f'other values{where}'}."
    )


def part_named(label: str) -> str:
    """Return the part that a cell of the column names, in small letters, as the trainer reads it."""
    return label.strip().lower()
