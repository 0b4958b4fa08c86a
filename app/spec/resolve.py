"""From a job spec and its table to the effective spec: every check that needs to see the data."""

from app.spec.columns import find_features, find_target, gap_problems
from app.spec.data import EffectiveData, EffectiveSplit
from app.spec.job import DeviceType, EffectiveSpec, JobSpec, LossName, MetricName, Task
from app.spec.parts import part_sizes
from app.spec.problems import InvalidSpec, SpecProblem
from app.spec.summary import shapes, usable_rows
from app.spec.table import Column, TableSchema
from app.spec.tasks import check_target, losses_and_metrics, task_of

MAX_PARAMETERS = 2**31
"""Above this a model is taken for a slip of the pen: its weights alone are 8 GiB."""


def resolve(spec: JobSpec, table: TableSchema, device_type: DeviceType) -> EffectiveSpec:
    """Fill in everything the spec left open, from its table and from the kind of device that `auto` means now.

    Raises InvalidSpec with every problem that the table shows. An effective spec resolves to itself. A batch larger
    than the training part is fine: it means one step per epoch.
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
    if spec.data.split.method == "stratified" and task == "regression":
        sentence = "A stratified split needs classes; regression has none. Use random or auto."
        problems.append(SpecProblem("/data/split/method", sentence, "random"))
    if spec.data.missing == "error":
        problems += gap_problems([*features, target])
    if problems:
        raise InvalidSpec(problems)
    effective = _effective(spec, _data(spec, target, features, task), (task, loss, metrics), device_type)
    problems = _size_problems(effective, table)
    if problems:
        raise InvalidSpec(problems)
    return effective


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
        split=EffectiveSplit(method=method, validation=split.validation, test=split.test, seed=seed),
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


def _size_problems(spec: EffectiveSpec, table: TableSchema) -> list[SpecProblem]:
    """Say when a part of the split would be empty, or the model too large to be meant."""
    problems = []
    rows = usable_rows(spec, table)
    train, validation, test = part_sizes(rows, spec.data.split)
    if train < 1:
        parts = f"{validation} for validation and {test} for the test" if test else f"{validation} for validation"
        sentence = f"The table has {rows} usable {'row' if rows == 1 else 'rows'}; {parts} leave none for training."
        problems.append(SpecProblem("/data/split", sentence, '{"validation": 0.0, "test": 0.0}' if rows else None))
    parameters = sum(layer.parameters for layer in shapes(spec, table))
    if parameters > MAX_PARAMETERS:
        sentence = f"The model has {parameters:,} parameters; at most {MAX_PARAMETERS:,} are accepted. Use fewer units."
        problems.append(SpecProblem("/model", sentence))
    return problems
