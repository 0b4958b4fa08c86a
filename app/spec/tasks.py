"""The task, and what goes with it: which targets, losses and metrics fit."""

from typing import Final

from app.spec.columns import FEW_CLASSES, spoilt_numbers
from app.spec.job import JobSpec, LossName, MetricName, Task
from app.spec.problems import SpecProblem
from app.spec.table import LABEL_LIMIT, Column, TableSchema

LOSSES: Final[dict[Task, tuple[LossName, ...]]] = {
    "classification": ("cross_entropy",),
    "regression": ("mse", "mae", "huber"),
}
METRICS: Final[dict[Task, tuple[MetricName, ...]]] = {
    "classification": ("accuracy", "top_3", "top_5", "f1", "auc"),
    "regression": ("mae", "rmse", "r2"),
}
USUAL_METRICS: Final[dict[Task, tuple[MetricName, ...]]] = {
    "classification": ("accuracy",),
    "regression": ("mae", "rmse", "r2"),
}
"""What `auto` means."""

INTEGER_CLASSES: Final = FEW_CLASSES
"""An integer target with at most this many different values is taken for class numbers when `task` is auto."""


def task_of(spec: JobSpec, table: TableSchema, target: Column) -> Task:
    """Return the task: as written, else the built-in set's own, else from the kind of target."""
    if spec.task != "auto":
        return spec.task
    if table.default_task is not None and target.name == table.default_target:
        return table.default_task
    if target.kind in ("text", "boolean"):
        return "classification"
    few = target.kind == "integer" and 0 < target.distinct <= INTEGER_CLASSES
    return "classification" if few else "regression"


def check_target(spec: JobSpec, task: Task, target: Column, rows: int) -> list[SpecProblem]:
    """Say what is wrong with training this task on this target."""
    if target.shape is not None:
        sentence = f"Column '{target.name}' holds arrays of shape {target.shape}; a target is one value per row."
        return [SpecProblem("/data/target", sentence)]
    if target.kind == "time":
        return [SpecProblem("/data/target", f"Column '{target.name}' holds dates or times, which cannot be predicted.")]
    if target.missing == rows:
        return [SpecProblem("/data/target", f"Column '{target.name}' has no value in any row.")]
    if task == "regression":
        return _check_numbers(target)
    if spec.task == "auto" and spoilt_numbers(target, rows):
        return [_text_in_numbers(target, 'or set task to "classification" if these are classes')]
    return _check_classes(target)


def losses_and_metrics(spec: JobSpec, task: Task) -> tuple[LossName, list[MetricName], list[SpecProblem]]:
    """Fill in or check the loss and the metrics of a task."""
    problems: list[SpecProblem] = []
    loss = LOSSES[task][0] if spec.loss == "auto" else spec.loss
    if loss not in LOSSES[task]:
        fitting = ", ".join(LOSSES[task])
        problems.append(
            SpecProblem("/loss", f"Loss {loss} does not fit {task}; use {fitting} or auto.", LOSSES[task][0])
        )
    metrics = list(USUAL_METRICS[task]) if spec.metrics == "auto" else list(spec.metrics)
    for position, metric in enumerate(metrics):
        if metric not in METRICS[task]:
            fitting = ", ".join(METRICS[task])
            sentence = f"Metric {metric} does not fit {task}; use {fitting} or auto."
            problems.append(SpecProblem(f"/metrics/{position}", sentence, METRICS[task][0]))
    return loss, metrics, problems


def _check_numbers(target: Column) -> list[SpecProblem]:
    if target.kind == "text":
        return [_text_in_numbers(target, 'or set task to "classification"')]
    if target.kind == "boolean":
        sentence = f"Regression needs numbers, but column '{target.name}' holds true and false."
        return [SpecProblem("/task", sentence, "classification")]
    return []


def _check_classes(target: Column) -> list[SpecProblem]:
    if target.kind == "number":
        sentence = f"Classification needs classes, but column '{target.name}' holds fractions; use regression."
        return [SpecProblem("/task", sentence, "regression")]
    if target.distinct > LABEL_LIMIT:
        sentence = f"Column '{target.name}' has more than {LABEL_LIMIT} different values, too many for classes."
        return [SpecProblem("/data/target", sentence, "regression" if target.kind == "integer" else None)]
    if target.distinct == 1:
        label = target.labels[0] if target.labels else "the same"
        sentence = f"Column '{target.name}' has one class only ('{label}'); classification needs at least two."
        return [SpecProblem("/data/target", sentence)]
    return []


def _text_in_numbers(target: Column, otherwise: str) -> SpecProblem:
    cell = target.first_text
    where = f"row {cell.row}, column '{target.name}': '{cell.value}'" if cell else f"column '{target.name}'"
    many = f" ({target.texts} cells are not)" if target.texts > 1 else ""
    sentence = f"The target must be numbers, but {where} is not a number{many}. Correct the file, {otherwise}."
    return SpecProblem("/data/target", sentence)
