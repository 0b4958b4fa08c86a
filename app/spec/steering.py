"""What is wrong with the values that steer training: what is monitored, class weights, exports."""

from collections.abc import Iterator, Sequence

from app.spec.columns import MOST_EXPLAINED, some
from app.spec.job import JobSpec, MetricName, Task
from app.spec.nearest import nearest_word
from app.spec.problems import SpecProblem, pointer
from app.spec.python_model import PythonModel
from app.spec.splitting import has_validation
from app.spec.table import Column, TableSchema
from app.spec.tasks import METRICS
from app.spec.training import MonitorName, ReduceOnPlateau

_TOP = {"top_3": 3, "top_5": 5}


def check_steering(
    spec: JobSpec, table: TableSchema, target: Column, task: Task, metrics: Sequence[MetricName]
) -> list[SpecProblem]:
    """Say what is wrong with metrics, monitors, class weights and exports, given the task and what is reported."""
    problems = [] if task == "regression" else list(_short_lists(metrics, target))
    validation = has_validation(spec.data.split, table)
    for where, monitor in monitors_of(spec):
        if monitor.startswith("val_") and not validation:
            problems.append(without_validation(where, monitor, by_column=spec.data.split.method == "given"))
        elif monitor.removeprefix("val_") not in ("loss", *metrics):
            problems.append(_unreported(where, monitor, metrics, task, validation=validation))
    problems += _class_weights(spec, target, task)
    problems += _exports(spec)
    problems += _devices(spec)
    return problems


def _devices(spec: JobSpec) -> Iterator[SpecProblem]:
    if spec.device_count > 1 and spec.framework == "tensorflow" and isinstance(spec.model, PythonModel):
        sentence = (
            "A python model of tensorflow trains on one device: a Keras model's own batch norm and random numbers know "
            "no others. With the framework torch it trains on several."
        )
        yield SpecProblem("/device_count", sentence, "1")


def _exports(spec: JobSpec) -> Iterator[SpecProblem]:
    for position, name in enumerate(spec.exports):
        if name == "keras" and spec.framework != "tensorflow":
            sentence = f"Export keras needs the framework tensorflow; what {spec.framework} trains can leave as onnx."
            yield SpecProblem(f"/exports/{position}", sentence, "onnx")
        elif name == "onnx" and spec.framework != "torch" and isinstance(spec.model, PythonModel):
            sentence = (
                f"Export onnx of a python model needs the framework torch; from {spec.framework} it leaves as keras."
            )
            yield SpecProblem(f"/exports/{position}", sentence, "keras")


def _short_lists(metrics: Sequence[MetricName], target: Column) -> Iterator[SpecProblem]:
    """A model is always right about the first k of k classes."""
    for position, metric in enumerate(metrics):
        if metric in _TOP and target.distinct <= _TOP[metric]:
            sentence = (
                f"Metric {metric} needs more than {_TOP[metric]} classes; column '{target.name}' has {target.distinct}."
            )
            yield SpecProblem(f"/metrics/{position}", sentence, "accuracy")


def monitors_of(spec: JobSpec) -> Iterator[tuple[str, MonitorName]]:
    """Yield where the spec names a value to look at, and the value."""
    settings = spec.hyperparameters
    if isinstance(settings.schedule, ReduceOnPlateau):
        yield "/hyperparameters/schedule/monitor", settings.schedule.monitor
    if settings.early_stopping is not None:
        yield "/hyperparameters/early_stopping/monitor", settings.early_stopping.monitor


def without_validation(
    where: str, monitor: MonitorName, *, by_column: bool = False, rows: int | None = None
) -> SpecProblem:
    """Say that there is no validation part to look at, and how to get one.

    `by_column`: the column of a given split says which rows are in it. `rows`: there are so few that each is the only
    one of its class in the training part.
    """
    how = "set data.split.validation above 0, for example 0.2"
    if by_column:
        how = "mark rows of data.split.column with validation"
    if rows is not None:
        how = f"the classes of {rows} rows are too small to share out, so set data.split.method to random"
    sentence = f"Monitor {monitor} needs a validation part, and there is none: {how}, or monitor loss."
    return SpecProblem(where, sentence, "loss")


def _unreported(
    where: str, monitor: MonitorName, metrics: Sequence[MetricName], task: Task, *, validation: bool
) -> SpecProblem:
    """Say why a value will not be there to look at."""
    metric = monitor.removeprefix("val_")
    known = [f"val_{name}" for name in ("loss", *metrics)] if validation else ["loss"]
    use = f"one of {', '.join(known)}" if known[1:] else known[0]
    if metric not in METRICS[task]:
        return SpecProblem(where, f"Monitor {monitor} does not fit {task}; use {use}.", known[0])
    return SpecProblem(where, f"Monitor {monitor} is not reported: add {metric} to metrics, or use {use}.", known[0])


def _class_weights(spec: JobSpec, target: Column, task: Task) -> list[SpecProblem]:
    weights = spec.hyperparameters.class_weights
    if weights is None:
        return []
    place = ("hyperparameters", "class_weights")
    if task == "regression":
        return [SpecProblem(pointer(place), "Class weights need classes; regression has none.", "null")]
    if weights == "balanced" or target.labels is None:
        return []
    problems: list[SpecProblem] = []
    known = frozenset(target.labels)
    for label in weights:
        if len(problems) >= MOST_EXPLAINED:
            break
        if label not in known:
            nearest = nearest_word(label, target.labels)
            advice = f"did you mean '{nearest}'?" if nearest else f"the classes are {some(target.labels)}."
            sentence = f"'{label}' is no class of column '{target.name}'; {advice}"
            problems.append(SpecProblem(pointer((*place, label)), sentence, nearest))
    return problems
