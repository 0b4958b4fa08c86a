"""From a job spec and its table to the effective spec: every check that needs to see the data."""

from app.spec.columns import empty_problems, find_features, find_target, gap_problems
from app.spec.data import EffectiveData, EffectiveSplit
from app.spec.fitting import check_fit
from app.spec.job import EffectiveSpec, JobSpec, LossName, MetricName, Task
from app.spec.pictures import with_picture
from app.spec.problems import InvalidSpec, SpecProblem
from app.spec.shared import DeviceType
from app.spec.splitting import check_split
from app.spec.steering import check_steering
from app.spec.table import Column, TableSchema
from app.spec.tasks import check_target, losses_and_metrics, task_of


def resolve(spec: JobSpec, table: TableSchema, device_type: DeviceType) -> EffectiveSpec:
    """Fill in everything the spec left open, from its table and from the kind of device that `auto` means now.

    Raises InvalidSpec with every problem that the table shows; the fit of model and data is only looked at when columns
    and task are right. An effective spec resolves to itself. A batch larger than the training part is fine: it means
    one step per epoch.
    """
    target = find_target(spec, table)
    if isinstance(target, SpecProblem):
        _, problems = find_features(spec, table, spec.data.target)
        raise InvalidSpec([target, *(problems if spec.data.features != "all" else [])])
    features, problems = find_features(spec, table, target.name)
    if not features and not problems:
        problems.append(SpecProblem("/data/features", f"There is no column but the target '{target.name}'."))
    task = task_of(spec, table, target)
    problems += check_target(spec, task, target, table.rows)
    loss, metrics, unfit = losses_and_metrics(spec, task)
    problems += unfit
    problems += check_split(spec, table, target, task)
    problems += check_steering(spec, table, target, task, metrics)
    if spec.data.missing == "error":
        problems += gap_problems([*features, target])
    elif spec.data.missing == "impute":
        problems += empty_problems(features, table.rows)
    if problems:
        raise InvalidSpec(problems)
    effective = _effective(spec, _data(spec, target, features, task), (task, loss, metrics), device_type)
    with_shape = with_picture(effective, table)
    if isinstance(with_shape, SpecProblem):
        raise InvalidSpec([with_shape])
    problems = check_fit(with_shape, table)
    if problems:
        raise InvalidSpec(problems)
    return with_shape


def _data(spec: JobSpec, target: Column, features: list[Column], task: Task) -> EffectiveData:
    split = spec.data.split
    method = split.method
    if method == "auto":
        method = "stratified" if task == "classification" else "random"
    seed = spec.hyperparameters.seed if split.seed is None else split.seed
    return EffectiveData(
        source=spec.data.source,
        target=target.name,
        features=[column.name for column in features],
        split=EffectiveSplit(
            method=method, column=split.column, validation=split.validation, test=split.test, seed=seed
        ),
        missing=spec.data.missing,
        preprocess=spec.data.preprocess,
    )


def _effective(
    spec: JobSpec, data: EffectiveData, goal: tuple[Task, LossName, list[MetricName]], device_type: DeviceType
) -> EffectiveSpec:
    task, loss, metrics = goal
    values = {name: getattr(spec, name) for name in JobSpec.model_fields}
    values |= {"data": data, "task": task, "loss": loss, "metrics": metrics}
    if spec.device_type == "auto":
        values["device_type"] = device_type
    return EffectiveSpec(**values)
