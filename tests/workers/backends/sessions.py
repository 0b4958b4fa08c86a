"""Small models on small tables, and the calls of a training, for every test that drives a backend by hand."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.spec.job import LossName
from app.spec.layers import ActivationLayer, ActivationName, BatchNormLayer, DenseLayer, DropoutLayer, Layer
from app.spec.training import Adam, Constant, Optimizer, Schedule
from workers.backends.base import Backend, DType, Program, Session, Steps
from workers.backends.initial import Weights, draw_weights
from workers.backends.schedules import learning_rates
from workers.data.arrays import Arrays
from workers.data.metrics import Task, evaluate, no_sums
from workers.data.order import epoch_plan
from workers.data.split import PartName
from workers.protocol import Device

CPU = Device(id="cpu-0@host", kind="cpu", name="CPU")
FEATURES = 6
ROWS = 77
"""With batches of 16 the last one has 13 rows."""


def layers(
    loss: LossName, rate: float = 0.0, activation: ActivationName = "tanh", *, batch_norm: bool = False
) -> list[Layer]:
    """Return two hidden layers, batch norm and dropout in the first, and the outputs that the loss needs."""
    hidden: list[Layer] = [DenseLayer("dense_1", 12, use_bias=not batch_norm)]
    if batch_norm:
        hidden.append(BatchNormLayer("batch_norm_1"))
    hidden.append(ActivationLayer("activation_1", activation))
    if rate:
        hidden.append(DropoutLayer("dropout_1", rate))
    hidden += [DenseLayer("dense_2", 8), ActivationLayer("activation_2", activation)]
    return [*hidden, DenseLayer("output", 3 if loss == "cross_entropy" else 1)]


def arrays(loss: LossName, rows: int = ROWS, seed: int = 0, dtype: DType = "float32") -> Arrays:
    """Return a table that can be learnt: a noisy function of the features, or three classes along it."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, FEATURES))
    y = np.sin(x[:, :1]) + x[:, 1:2] * x[:, 2:3] + generator.normal(0, 0.1, (rows, 1))
    classes = np.digitize(y[:, 0], [-0.5, 0.5]).astype(np.int64)
    return Arrays(x=x.astype(dtype), y=classes if loss == "cross_entropy" else y.astype(dtype))


@dataclass(frozen=True)
class Recipe:
    """One small training. `chunk`: how many steps go into a call of `run`; None: a whole epoch's."""

    loss: LossName = "cross_entropy"
    optimizer: Optimizer = Adam(name="adam")  # noqa: RUF009 - frozen
    schedule: Schedule = Constant(name="constant")  # noqa: RUF009 - frozen
    rate: float = 0.01
    dropout: float = 0.0
    l1: float = 0.0
    l2: float = 0.0
    epochs: int = 10
    batch: int = 16
    seed: int = 3
    dtype: DType = "float32"
    activation: ActivationName = "tanh"
    chunk: int | None = None
    batch_norm: bool = False
    clip_norm: float | None = None
    clip_value: float | None = None
    class_weights: tuple[float, ...] | None = None


@dataclass(frozen=True)
class Result:
    """Mean losses of each epoch over the training batches and over the validation part, and the final weights."""

    train: NDArray[np.float64]
    validation: NDArray[np.float64]
    weights: Weights


def open_session(backend: Backend, recipe: Recipe, mask_seed: int | None = None) -> Session:
    """Prepare the backend on one CPU thread and open the recipe's model with its parts.

    `mask_seed`: a seed for the dropout masks other than that of the weights.
    """
    backend.prepare([CPU], 1)
    model = layers(recipe.loss, recipe.dropout, recipe.activation, batch_norm=recipe.batch_norm)
    program = Program(
        layers=tuple(model),
        input_shape=(FEATURES,),
        loss=recipe.loss,
        optimizer=recipe.optimizer,
        batch_size=recipe.batch,
        l1=recipe.l1,
        l2=recipe.l2,
        seed=recipe.seed if mask_seed is None else mask_seed,
        dtype=recipe.dtype,
        clip_norm=recipe.clip_norm,
        clip_value=recipe.clip_value,
        class_weights=recipe.class_weights,
    )
    parts: dict[PartName, Arrays] = {
        "train": arrays(recipe.loss, ROWS, 0, recipe.dtype),
        "validation": arrays(recipe.loss, 30, 1, recipe.dtype),
        "test": arrays(recipe.loss, 0, 2, recipe.dtype),
    }
    return backend.open(program, draw_weights(model, (FEATURES,), recipe.seed), parts)


def train(backend: Backend, recipe: Recipe) -> Result:
    session = open_session(backend, recipe)
    task: Task = "classification" if recipe.loss == "cross_entropy" else "regression"
    total = recipe.epochs * -(-ROWS // recipe.batch)
    losses: list[tuple[float, float]] = []
    validation = arrays(recipe.loss, 30, 1, recipe.dtype)
    step = 0
    for epoch in range(1, recipe.epochs + 1):
        sums = no_sums(task)
        for rows in _chunks(recipe, epoch):
            rates = learning_rates(recipe.schedule, recipe.rate, total, step, len(rows), total // recipe.epochs)
            sums = session.run(Steps(rows=rows, rates=rates, first=step), sums)
            step += len(rows)
        seen = evaluate(session.outputs("validation", 0, 30), validation.y, task, [], 1.0, recipe.loss)
        losses.append((float(sums[0]) / ROWS, seen["loss"]))
    train_losses, validation_losses = np.array(losses).T
    return Result(train_losses, validation_losses, session.weights())


def _chunks(recipe: Recipe, epoch: int) -> Sequence[NDArray[np.int64]]:
    plan = epoch_plan(recipe.seed, epoch, ROWS, recipe.batch)
    length = recipe.chunk or max(1, len(plan.full))
    chunks = [plan.full[start : start + length] for start in range(0, len(plan.full), length)]
    return [*chunks, plan.rest[None]] if len(plan.rest) else chunks
