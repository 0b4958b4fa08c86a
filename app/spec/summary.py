"""What a job will be, worked out without training: layer shapes, parameters, rows, steps, memory."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from app.spec.expand import layers_of
from app.spec.job import EffectiveSpec
from app.spec.layers import DenseLayer
from app.spec.parts import part_sizes
from app.spec.table import TableSchema
from app.spec.training import Adam

_BYTES = 4  # float32


class LayerShape(BaseModel):
    """One layer: the shape of what it gives out, without the batch, and its trained numbers."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    type: Literal["dense", "activation", "dropout"]
    output_shape: list[int]
    parameters: int


class Summary(BaseModel):
    """A job before it runs.

    Row counts are exact, except with `missing: drop` when several columns have gaps: the gaps may share rows or not, so
    the counts are then the largest possible. `memory_bytes` is an estimate of what model, gradients, optimizer,
    activations and data need in float32; the framework's own memory comes on top.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: list[LayerShape]
    parameter_count: int
    train_rows: int
    validation_rows: int
    test_rows: int
    steps_per_epoch: int = Field(description="Batches per epoch; the last may be smaller.")
    memory_bytes: int


def summarise(spec: EffectiveSpec, table: TableSchema) -> Summary:
    """Work out shapes, parameters, rows, steps and memory from the effective spec and the table."""
    layers = shapes(spec, table)
    parameters = sum(layer.parameters for layer in layers)
    rows = usable_rows(spec, table)
    parts = part_sizes(rows, spec.data.split)
    batch = min(spec.hyperparameters.batch_size, max(parts.train, 1))
    activations = 2 * batch * sum(layer.output_shape[0] for layer in layers)  # kept forward, and their gradients
    data = rows * (len(spec.data.features) + 1)
    return Summary(
        layers=layers,
        parameter_count=parameters,
        train_rows=parts.train,
        validation_rows=parts.validation,
        test_rows=parts.test,
        steps_per_epoch=-(-parts.train // spec.hyperparameters.batch_size),
        memory_bytes=_BYTES * (parameters * (2 + _slots(spec)) + activations + data),
    )


def output_units(spec: EffectiveSpec, table: TableSchema) -> int:
    """Return the number of classes of the target, or 1 for regression."""
    target = table.column(spec.data.target)
    return target.distinct if spec.task == "classification" and target is not None else 1


def usable_rows(spec: EffectiveSpec, table: TableSchema) -> int:
    """Return the rows that remain when rows with gaps in the used columns are left out (the most that can remain)."""
    used = {spec.data.target, *spec.data.features}
    return table.rows - max(
        (column.missing + column.infinite for column in table.columns if column.name in used), default=0
    )


def shapes(spec: EffectiveSpec, table: TableSchema) -> list[LayerShape]:
    """Follow the width through the layers: a dense layer has (inputs + 1) * units parameters, the others none."""
    width = len(spec.data.features)
    found: list[LayerShape] = []
    for layer in layers_of(spec, output_units(spec, table)):
        parameters = 0
        if isinstance(layer, DenseLayer):
            parameters = (width + 1) * layer.units
            width = layer.units
        found.append(LayerShape(name=layer.name, type=layer.type, output_shape=[width], parameters=parameters))
    return found


def _slots(spec: EffectiveSpec) -> int:
    optimizer = spec.hyperparameters.optimizer
    return 2 if isinstance(optimizer, Adam) else int(optimizer.momentum > 0)
