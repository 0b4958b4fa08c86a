"""A backend in NumPy, with gradients worked out by hand: it passes the suite that the frameworks pass.

Two uses: an independent reference in float64, and a training that fails where a test says. It has the layers of dense
networks, and computes on one device whatever was leased.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from app.errors import Cause
from tests.workers.backends.fake_layers import NumpyModel
from tests.workers.backends.fake_optimizers import Update
from workers.backends.base import Backend, Prepared, Program, Session, SessionState, Steps
from workers.backends.devices import arithmetic
from workers.backends.initial import WeightFacts, Weights, weight_facts
from workers.data.arrays import Arrays
from workers.data.metrics import Sums
from workers.data.split import PartName
from workers.protocol import Device

__all__ = ["DeviceFull", "NumpyBackend", "NumpySession", "Update", "create"]

Matrix = NDArray[np.floating]
Step = Callable[[int], None]


class DeviceFull(Exception):
    """What this framework raises when its device is full."""


class NumpyBackend:
    """`before_step` is called with the number of each step, and may raise. `spoil`: a step that ruins a weight."""

    def __init__(self, before_step: Step = lambda _: None, *, spoil: tuple[int, str] | None = None) -> None:
        self._before_step = before_step
        self._spoil = spoil
        self.closed = 0

    def prepare(self, devices: Sequence[Device], threads: int) -> Prepared:
        return Prepared(
            framework="numpy",
            version=np.__version__,
            device_kind=arithmetic(devices),
            devices=tuple(device.name for device in devices),
            simulated=any(device.kind == "simulated" for device in devices),
            threads=threads,
        )

    def open(self, program: Program, weights: Weights, parts: Mapping[PartName, Arrays]) -> Session:
        return NumpySession(program, weights, parts, self)

    def cause_of(self, error: BaseException) -> Cause | None:
        return Cause.DEVICE_OUT_OF_MEMORY if isinstance(error, DeviceFull) else None

    def versions(self) -> dict[str, str]:
        return {"numpy": np.__version__}

    def before_step(self, step: int, weights: Mapping[str, Matrix]) -> None:
        self._before_step(step)
        if self._spoil is not None and step == self._spoil[0]:
            weights[self._spoil[1]][...] = np.nan


class NumpySession:
    def __init__(
        self, program: Program, weights: Weights, parts: Mapping[PartName, Arrays], backend: NumpyBackend
    ) -> None:
        self._program = program
        self._parts = parts
        self._backend = backend
        self._model = NumpyModel(program, {name: value.astype(program.dtype) for name, value in weights.items()})
        self._update = Update(self._model.trained(), program.optimizer, program.weight_decay)

    def run(self, steps: Steps, sums: Sums) -> Sums:
        train = self._parts["train"]
        for place, (rows, rate) in enumerate(zip(steps.rows, steps.rates, strict=True)):
            step = steps.first + place
            self._backend.before_step(step, self._model.weights)
            logits, gradients, loss = self._model.differentiate(train.x[rows], train.y[rows], step)
            self._update(self._clipped(gradients), float(rate), step + 1)
            sums = sums + _sums(loss, logits, train.y[rows])
        return sums

    def outputs(self, part: PartName, start: int, stop: int) -> Matrix:
        return self._model.outputs(self._parts[part].x[start:stop])

    def facts(self) -> dict[str, WeightFacts]:
        return weight_facts(self._program.layers, self._program.input_shape)

    def weights(self) -> Weights:
        return {name: value.copy() for name, value in self._model.weights.items()}

    def state(self) -> SessionState:
        return self._update.state()

    def restore(self, weights: Weights, state: SessionState | None) -> None:
        for name, value in weights.items():
            self._model.weights[name][...] = value
        if state is not None:
            self._update.restore(state)

    def close(self) -> None:
        self._backend.closed += 1

    def _clipped(self, gradients: dict[str, Matrix]) -> dict[str, Matrix]:
        if (value := self._program.clip_value) is not None:
            gradients = {name: np.clip(gradient, -value, value) for name, gradient in gradients.items()}
        if (norm := self._program.clip_norm) is not None:
            length = np.sqrt(sum(float((gradient**2).sum()) for gradient in gradients.values()))
            gradients = {
                name: gradient * float(min(1.0, norm / (length + 1e-6))) for name, gradient in gradients.items()
            }
        return gradients


def _sums(loss: float, logits: Matrix, y: NDArray[np.generic]) -> Sums:
    if y.ndim == 1:
        return np.array([loss, (logits.argmax(axis=1) == y).sum()], np.float64)
    error = (logits - y.astype(logits.dtype)).astype(np.float64)
    return np.array([loss, np.abs(error).sum(), (error**2).sum()])


def create() -> Backend:
    return NumpyBackend()
