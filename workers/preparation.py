"""What comes before the first step: the table read and divided, the model built with its first weights."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from app.spec import EffectiveSpec, Layer
from app.tables import features_and_target, read_table
from workers.backends.base import Backend, DType, Program, Session
from workers.backends.initial import draw_weights, weight_shapes
from workers.context import Context
from workers.data.dataset import Dataset, prepare
from workers.protocol import Assignment

_EVALUATION_COST: Final = 1e9
"""Rows times parameters in one call of `evaluate`: a fraction of a second on one core."""


def read_dataset(assignment: Assignment, context: Context, dtype: DType = "float32") -> Dataset:
    """Read the table and make the parts, with a notice for everything about them that a user should know.

    Raises:
        InvalidTable: the data cannot be read, or does not have what the spec names.
        TooFewRows: nothing is left to train on.
    """
    devices = len(assignment.devices)
    if devices > 1:
        context.notice("single_device", f"The job holds {devices} devices and trains on the first of them.")
    source = assignment.table
    table = read_table(None if source.path is None else Path(source.path), source.builtin)
    columns = features_and_target(table, assignment.spec)
    if columns.dropped:
        rows = f"{columns.dropped} row{' with gaps was' if columns.dropped == 1 else 's with gaps were'}"
        context.notice("rows_dropped", f"{rows} left out, as data.missing 'drop' says.")
    data = prepare(columns, assignment.spec, dtype)
    for code, message in data.notices:
        context.notice(code, message)
    return data


def open_session(
    spec: EffectiveSpec, layers: Sequence[Layer], data: Dataset, backend: Backend, dtype: DType = "float32"
) -> Session:
    """Build the model that a spec describes, with its first weights."""
    hyperparameters = spec.hyperparameters
    program = Program(
        layers=tuple(layers),
        loss=spec.loss,
        optimizer=hyperparameters.optimizer,
        batch_size=min(hyperparameters.batch_size, len(data.parts["train"])),
        l1=hyperparameters.l1,
        l2=hyperparameters.l2,
        seed=hyperparameters.seed,
        dtype=dtype,
    )
    weights = draw_weights(layers, len(spec.data.features), hyperparameters.seed)
    return backend.open(program, weights, data.parts)


def parameter_count(layers: Sequence[Layer], features: int) -> int:
    return sum(math.prod(shape) for shape in weight_shapes(layers, features).values())


def block_rows(parameters: int) -> int:
    """How many rows `evaluate` gets at once: fixed by the model, so that sums are added in the same order each time."""
    return max(32, min(8192, int(_EVALUATION_COST / parameters)))
