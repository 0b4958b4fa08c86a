"""A backend in NumPy, with gradients worked out by hand: it passes the suite that the frameworks pass.

Two uses: an independent reference in float64, and a training that fails where a test says.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.errors import Cause
from app.spec.layers import ActivationLayer, DenseLayer
from app.spec.training import Adam, Sgd
from workers.backends.base import Backend, Prepared, Program, Session, Steps
from workers.backends.devices import arithmetic
from workers.backends.hashing import dropouts, kept, places, step_keys
from workers.backends.initial import Weights
from workers.data.arrays import Arrays
from workers.data.metrics import Sums
from workers.data.split import PartName
from workers.protocol import Device

Matrix = NDArray[np.floating]
Step = Callable[[int], None]

ACTIVATIONS: Final[Mapping[str, tuple[Callable[[Matrix], Matrix], Callable[[Matrix], Matrix]]]] = {
    "relu": (lambda x: np.maximum(x, 0), lambda x: (x > 0).astype(x.dtype)),
    "tanh": (np.tanh, lambda x: 1 - np.tanh(x) ** 2),
}
"""Functions and their derivatives."""


class DeviceFull(Exception):
    """What this framework raises when its device is full."""


class NumpyBackend:
    """`before_step` is called with the number of each step, and may raise."""

    def __init__(self, before_step: Step = lambda _: None) -> None:
        self._before_step = before_step

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
        return NumpySession(program, weights, parts, self._before_step)

    def cause_of(self, error: BaseException) -> Cause | None:
        return Cause.DEVICE_OUT_OF_MEMORY if isinstance(error, DeviceFull) else None


class NumpySession:
    def __init__(self, program: Program, weights: Weights, parts: Mapping[PartName, Arrays], before_step: Step) -> None:
        self._program = program
        self._weights = {name: value.astype(program.dtype) for name, value in weights.items()}
        self._parts = parts
        self._before_step = before_step
        layers = dropouts(program.layers, parts["train"].x.shape[1])
        self._places = [places(program.batch_size, width) for _, width in layers]
        self._update = Update(self._weights, program.optimizer)

    def run(self, steps: Steps, sums: Sums) -> Sums:
        keys = step_keys(self._program.seed, len(self._places), steps.first, len(steps))
        train = self._parts["train"]
        for place, (rows, rate) in enumerate(zip(steps.rows, steps.rates, strict=True)):
            self._before_step(steps.first + place)
            logits, gradients, loss = self._differentiate(train.x[rows], train.y[rows], keys[place])
            self._update(gradients, float(rate), steps.first + place + 1)
            sums = sums + _sums(loss, logits, train.y[rows])
        return sums

    def evaluate(self, part: PartName, start: int, stop: int, sums: Sums) -> Sums:
        x, y = self._parts[part].x[start:stop], self._parts[part].y[start:stop]
        logits = self._forward(x, None)[-1]
        return sums + _sums(_loss(self._program.loss, logits, y)[0], logits, y)

    def weights(self) -> Weights:
        return {name: value.copy() for name, value in self._weights.items()}

    def _forward(self, x: Matrix, keys: NDArray[np.uint32] | None) -> list[Matrix]:
        """Return what goes into each layer, and the logits at the end."""
        values = [x]
        dropped = 0
        for layer in self._program.layers:
            if isinstance(layer, DenseLayer):
                x = x @ self._weights[f"{layer.name}.kernel"] + self._weights[f"{layer.name}.bias"]
            elif isinstance(layer, ActivationLayer):
                x = ACTIVATIONS[layer.function][0](x)
            elif keys is not None:
                x = x * self._mask(dropped, keys, x, layer.rate)
                dropped += 1
            values.append(x)
        return values

    def _mask(self, layer: int, keys: NDArray[np.uint32], x: Matrix, rate: float) -> Matrix:
        mask = kept(self._places[layer][: len(x)], keys[layer], rate)
        return mask.astype(x.dtype) * x.dtype.type(1.0 / (1.0 - rate))

    def _differentiate(
        self, x: Matrix, y: NDArray[np.generic], keys: NDArray[np.uint32]
    ) -> tuple[Matrix, dict[str, Matrix], float]:
        values = self._forward(x, keys)
        loss, slope = _loss(self._program.loss, values[-1], y)
        slope = slope / x.dtype.type(len(x))
        gradients: dict[str, Matrix] = {}
        dropped = len(self._places)
        for layer, before in zip(reversed(self._program.layers), reversed(values[:-1]), strict=True):
            if isinstance(layer, DenseLayer):
                kernel = self._weights[f"{layer.name}.kernel"]
                penalty = self._program.l1 * np.sign(kernel) + 2 * self._program.l2 * kernel
                gradients[f"{layer.name}.kernel"] = (before.T @ slope + penalty).astype(kernel.dtype)
                gradients[f"{layer.name}.bias"] = slope.sum(axis=0)
                slope = slope @ kernel.T
            elif isinstance(layer, ActivationLayer):
                slope = slope * ACTIVATIONS[layer.function][1](before)
            else:
                dropped -= 1
                slope = slope * self._mask(dropped, keys, before, layer.rate)
        return values[-1], gradients, loss


class Update:
    """The optimizers as torch's documentation writes them, in NumPy, in place."""

    def __init__(self, weights: Mapping[str, Matrix], spec: Sgd | Adam) -> None:
        self._weights = weights
        self._spec = spec
        self._first = {name: np.zeros_like(value) for name, value in weights.items()}
        self._second = {name: np.zeros_like(value) for name, value in weights.items()}

    def __call__(self, gradients: Mapping[str, Matrix], rate: float, step: int) -> None:
        for name, weight in self._weights.items():
            move = (
                self._sgd(name, gradients[name]) if isinstance(self._spec, Sgd) else self._adam(name, gradients, step)
            )
            np.subtract(weight, (rate * move).astype(weight.dtype), out=weight)

    def _sgd(self, name: str, gradient: Matrix) -> Matrix:
        assert isinstance(self._spec, Sgd)
        self._first[name] = self._spec.momentum * self._first[name] + gradient
        return gradient + self._spec.momentum * self._first[name] if self._spec.nesterov else self._first[name]

    def _adam(self, name: str, gradients: Mapping[str, Matrix], step: int) -> Matrix:
        assert isinstance(self._spec, Adam)
        beta_1, beta_2, gradient = self._spec.beta_1, self._spec.beta_2, gradients[name]
        self._first[name] = beta_1 * self._first[name] + (1 - beta_1) * gradient
        self._second[name] = beta_2 * self._second[name] + (1 - beta_2) * gradient**2
        mean = self._first[name] / (1 - beta_1**step)
        square = self._second[name] / (1 - beta_2**step)
        return np.asarray(mean / (np.sqrt(square) + self._spec.epsilon))


def _loss(name: str, logits: Matrix, y: NDArray[np.generic]) -> tuple[float, Matrix]:
    """Return the sum over rows, and its slope by the logits."""
    if name == "cross_entropy":
        shifted = logits - logits.max(axis=1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
        truth = np.eye(logits.shape[1], dtype=logits.dtype)[y.astype(np.int64)]
        return float(-(logs * truth).sum()), np.exp(logs) - truth
    error = logits - y.astype(logits.dtype)
    distance = np.abs(error)
    if name == "mse":
        return float((error**2).sum()), 2 * error
    if name == "mae":
        return float(distance.sum()), np.sign(error)
    return float(np.where(distance < 1, error**2 / 2, distance - 0.5).sum()), np.clip(error, -1, 1)


def _sums(loss: float, logits: Matrix, y: NDArray[np.generic]) -> Sums:
    if y.ndim == 1:
        return np.array([loss, (logits.argmax(axis=1) == y).sum()], np.float64)
    error = (logits - y.astype(logits.dtype)).astype(np.float64)
    return np.array([loss, np.abs(error).sum(), (error**2).sum()])


def create() -> Backend:
    return NumpyBackend()
