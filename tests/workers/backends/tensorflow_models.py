"""Small models with every kind of layer that matters to several devices, and the calls of a training, for TensorFlow.

Run as a program it trains each of them on 1 to 4 logical CPU devices and prints what came out, as JSON: the number of
logical devices is fixed at TensorFlow's first op, so a process that has trained on one cannot train on two.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from app.spec.layers import (
    ActivationLayer,
    AvgPool2dLayer,
    BatchNormLayer,
    Conv2dLayer,
    DenseLayer,
    DropoutLayer,
    FlattenLayer,
    Layer,
    LstmLayer,
    MaxPool2dLayer,
    ReshapeLayer,
    ResidualLayer,
)
from app.spec.optimizers import AdamW, RmsProp
from tests.workers.backends.conformance import same
from workers.backends.base import DeviceUnavailable, Program, Session, Steps, load_backend
from workers.backends.initial import draw_weights
from workers.data.arrays import Arrays
from workers.data.metrics import no_sums
from workers.data.order import epoch_plan
from workers.protocol import Device

FEATURES = 36
CLASSES = 3
CPUS = [Device(id=f"cpu-{place}@host", kind="cpu", name="CPU") for place in range(4)]

PICTURES: tuple[Layer, ...] = (
    ReshapeLayer("reshape_1", (6, 6, 1)),
    Conv2dLayer("conv2d_1", 4, (3, 3), use_bias=False),
    BatchNormLayer("batch_norm_1"),
    ActivationLayer("activation_1", "tanh"),
    DropoutLayer("dropout_1", 0.2),
    ResidualLayer(
        "residual_1",
        (
            Conv2dLayer("conv2d_2", 4, (3, 3), use_bias=False),
            BatchNormLayer("batch_norm_2"),
            DropoutLayer("dropout_2", 0.1),
        ),
    ),
    MaxPool2dLayer("max_pool2d_1"),
    AvgPool2dLayer("avg_pool2d_1", (2, 2), (1, 1), "same"),
    FlattenLayer("flatten_1"),
    DenseLayer("dense_1", 8, use_bias=False),
    BatchNormLayer("batch_norm_3"),
    ActivationLayer("activation_2", "tanh"),
    DropoutLayer("dropout_3", 0.3),
    DenseLayer("output", CLASSES),
)
SEQUENCES: tuple[Layer, ...] = (
    ReshapeLayer("reshape_1", (9, 4)),
    LstmLayer("lstm_1", 5),
    DropoutLayer("dropout_1", 0.3),
    DenseLayer("output", CLASSES),
)


def program(layers: tuple[Layer, ...] = PICTURES, **settings: Any) -> Program:
    given: dict[str, Any] = {
        "optimizer": AdamW(name="adamw"),
        "weight_decay": 0.1,
        "batch_size": 16,
        "l2": 1e-3,
        "clip_norm": 1.0,
        "class_weights": (1.0, 2.0, 0.5),
        "seed": 3,
        **settings,
    }
    return Program(layers=layers, input_shape=(FEATURES,), loss="cross_entropy", **given)


def part(rows: int, seed: int = 0) -> Arrays:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, FEATURES))
    return Arrays(x=x, y=np.digitize(x[:, 0] + x[:, 7] * x[:, 20], [-0.5, 0.5]).astype(np.int64))


def session_of(program: Program, rows: int = 35) -> Session:
    """Open a session on a backend that is prepared; 35 rows in batches of 16 leave 3 for the last."""
    weights = draw_weights(program.layers, program.input_shape, 3)
    return load_backend("tensorflow").open(program, weights, {"train": part(rows), "validation": part(11, 1)})


def curve(session: Session, rows: int = 35, epochs: Sequence[int] = range(1, 6)) -> list[float]:
    """Train the epochs; returns the sums of each, and the logits of the validation part after it."""
    values: list[float] = []
    for epoch in epochs:
        plan = epoch_plan(3, epoch, rows, 16)
        sums, step = no_sums("classification"), (epoch - 1) * plan.steps
        for batches in (plan.full, plan.rest[None]):
            sums = session.run(Steps(rows=batches, rates=np.full(len(batches), 0.01), first=step), sums)
            step += len(batches)
        values += [*sums.tolist(), *session.outputs("validation", 0, 11).ravel().tolist()]
    return values


@dataclass(frozen=True)
class Case:
    """One program and how many rows it trains on; 33 leave a last batch of one row (case C32)."""

    program: Program
    rows: int = 35


CASES = {
    "pictures": Case(program(dtype="float64")),
    "pictures in float32": Case(program()),
    "sequences": Case(program(SEQUENCES, dtype="float64", optimizer=RmsProp(name="rmsprop"), weight_decay=0.0), 33),
    "pictures in float16": Case(program(precision="float16")),
}


Sessions = dict[int, Session]
Curves = dict[int, list[float]]


def trained(name: str, counts: Sequence[int]) -> tuple[Sessions, Curves]:
    """Train a case for three epochs on each number of devices."""
    case = CASES[name]
    sessions = {count: session_of(replace(case.program, world=count), case.rows) for count in counts}
    return sessions, {count: curve(session, case.rows, range(1, 4)) for count, session in sessions.items()}


def in_step(session: Session) -> bool:
    """Whether every device has the same bits after training, moving statistics included."""
    model: Any = cast("Any", session)._model
    copies = [model.local_weights(place) for place in range(model.group.world)]
    first, *others = ({name: variable.numpy() for name, variable in copy.items()} for copy in copies)
    return all(same(first, other) for other in others)


def goes_on(session: Session, world: int) -> bool:
    """Whether a new session goes on where a trained one is, bit by bit."""
    second = session_of(replace(CASES["pictures"].program, world=world))
    second.restore(session.weights(), session.state())
    return curve(session, epochs=[4]) == curve(second, epochs=[4]) and same(session.weights(), second.weights())


def looked(session: Session) -> list[list[float]]:
    """Return the logits of 11 rows at once, in pieces smaller than the number of devices, and of none."""
    pieces = [session.outputs("validation", start, min(start + 3, 11)) for start in range(0, 11, 3)]
    whole, none = session.outputs("validation", 0, 11), session.outputs("validation", 4, 4)
    return [whole.ravel().tolist(), np.concatenate(pieces).ravel().tolist(), list(none.shape)]


def refused() -> str:
    try:
        session_of(program(world=5))
    except DeviceUnavailable as error:
        return str(error)
    return ""


def main() -> None:
    prepared = load_backend("tensorflow").prepare(CPUS, 1)
    sessions, curves = trained("pictures", [1, 2, 3, 4])
    found: dict[str, object] = {"devices": prepared.devices, "pictures": curves, "refused": refused()}
    found |= {"in step": in_step(sessions[3]), "goes on": goes_on(sessions[2], 2), "looked": looked(sessions[4])}
    for name, counts in (("pictures in float32", [1, 2]), ("sequences", [1, 2]), ("pictures in float16", [2])):
        found[name] = trained(name, counts)[1]
    for session in sessions.values():
        session.close()
        session.close()
    print(json.dumps(found))  # noqa: T201 - what a test reads


if __name__ == "__main__":
    main()
