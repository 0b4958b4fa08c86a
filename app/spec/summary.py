"""What a job will be, worked out without training: layer shapes, parameters, rows, steps, memory."""

import math

from pydantic import BaseModel, ConfigDict, Field

from app.spec.expand import layers_of
from app.spec.inputs import input_shape_of, inputs_of
from app.spec.job import EffectiveSpec
from app.spec.layers import BatchNormLayer, Layer, Shape, walk
from app.spec.parts import Parts, part_sizes, stratified_sizes
from app.spec.python_model import PythonModel
from app.spec.shapes import LayerShape, infer
from app.spec.splitting import part_named
from app.spec.table import TableSchema
from app.spec.training import Adagrad, Adam, AdamW, Optimizer, RmsProp
from app.spec.weights import weight_facts

_BYTES = 4  # float32


class Summary(BaseModel):
    """A job before it runs.

    Row counts are exact, except with `missing: drop` when several columns have gaps: the gaps may share rows or not, so
    the counts are then the largest possible, and so is the number of classes. `memory_bytes` is an estimate of what
    model, gradients, optimizer, activations and data need in float32; the framework's own memory comes on top.

    What a client's own code builds is known only when it runs: `layers` is empty then, and there is no number of
    parameters and no memory.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    input_shape: list[int] = Field(description="Of one row as the model gets it: encoded, without the batch.")
    layers: list[LayerShape]
    parameter_count: int | None
    train_rows: int
    validation_rows: int
    test_rows: int
    steps_per_epoch: int = Field(description="Batches per epoch; the last may be smaller.")
    memory_bytes: int | None


def summarise(spec: EffectiveSpec, table: TableSchema) -> Summary:
    """Work out shapes, parameters, rows, steps and memory from the effective spec and the table."""
    layers, input_shape = model_of(spec, table)
    shapes = infer(layers, input_shape)
    known = not isinstance(spec.model, PythonModel)
    facts = weight_facts(layers, input_shape).values()
    trained = sum(weight.size for weight in facts if weight.trained)
    still = sum(weight.size for weight in facts if not weight.trained)
    parts = rows_of(spec, table)
    batch = min(spec.hyperparameters.batch_size, max(parts.train, 1))
    activations = 2 * batch * sum(math.prod(layer.output_shape) for layer in shapes)  # kept, and their gradients
    data = sum(parts) * (math.prod(input_shape) + 1)
    slots = _slots(spec.hyperparameters.optimizer)
    return Summary(
        input_shape=list(input_shape),
        layers=shapes,
        parameter_count=trained if known else None,
        train_rows=parts.train,
        validation_rows=parts.validation,
        test_rows=parts.test,
        steps_per_epoch=steps_per_epoch(layers, parts.train, spec.hyperparameters.batch_size),
        memory_bytes=_BYTES * (trained * (2 + slots) + still + activations + data) if known else None,
    )


def model_of(spec: EffectiveSpec, table: TableSchema) -> tuple[list[Layer], Shape]:
    """Return the layers of the job's model, and the shape of a row that they get."""
    input_shape = input_shape_of(inputs_of(spec.data, table))
    return layers_of(spec, output_units(spec, table), input_shape), input_shape


def output_units(spec: EffectiveSpec, table: TableSchema) -> int:
    """Return the number of classes of the target, or 1 for regression."""
    target = table.column(spec.data.target)
    return target.distinct if spec.task == "classification" and target is not None else 1


def usable_rows(spec: EffectiveSpec, table: TableSchema) -> int:
    """Return the rows that remain when rows with gaps are left out (the most that can remain).

    A gap in any used column costs its row, with `missing: impute` a gap in the target alone.
    """
    used = {spec.data.target} if spec.data.missing == "impute" else {spec.data.target, *spec.data.features}
    return table.rows - max(
        (column.missing + column.infinite for column in table.columns if column.name in used), default=0
    )


def rows_of(spec: EffectiveSpec, table: TableSchema) -> Parts:
    """Return the rows of each part, as a trainer divides them.

    Of a given split as the column says, if the table knows how often it says what, else all as training rows.
    """
    split, rows = spec.data.split, usable_rows(spec, table)
    if split.method == "stratified":
        return stratified_sizes(rows, output_units(spec, table), split)
    if split.method != "given":
        return part_sizes(rows, split)
    column = table.column(split.column or "")
    if column is None or column.labels is None or column.counts is None:
        return Parts(rows, 0, 0)
    counts = {"train": 0, "validation": 0, "test": 0}
    for label, count in zip(column.labels, column.counts, strict=True):
        counts[part_named(label)] += count
    return Parts(counts["train"], counts["validation"], counts["test"])


def steps_per_epoch(layers: list[Layer], rows: int, batch_size: int) -> int:
    """Return the batches of an epoch; with batch norm a last batch of one row joins the one before.

    Without layers it is a model of the client's own code, which may have batch norm.
    """
    single = rows > batch_size > 1 and rows % batch_size == 1
    fold = single and (not layers or any(isinstance(layer, BatchNormLayer) for layer in walk(layers)))
    return -(-rows // batch_size) - fold


def _slots(optimizer: Optimizer) -> int:
    """Return how many numbers the optimizer keeps for each trained one."""
    if isinstance(optimizer, Adam | AdamW):
        return 2
    if isinstance(optimizer, Adagrad):
        return 1
    return int(isinstance(optimizer, RmsProp)) + int(optimizer.momentum > 0)
