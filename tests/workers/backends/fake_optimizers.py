"""The optimizers as torch's documentation writes them, in NumPy."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from app.spec.training import Adagrad, Adam, AdamW, Optimizer, RmsProp, Sgd

Matrix = NDArray[np.floating]


class Update:
    """Moves the weights, in place; `weight_decay` acts on kernels, by AdamW alone."""

    def __init__(self, weights: Mapping[str, Matrix], spec: Optimizer, weight_decay: float = 0.0) -> None:
        start = spec.initial_accumulator if isinstance(spec, Adagrad) else 0.0
        self._weights = weights
        self._spec = spec
        self._weight_decay = weight_decay
        self._first = {name: np.zeros_like(value) for name, value in weights.items()}
        self._second = {name: np.full_like(value, start) for name, value in weights.items()}

    def __call__(self, gradients: Mapping[str, Matrix], rate: float, step: int) -> None:
        for name, weight in self._weights.items():
            if isinstance(self._spec, AdamW) and name.endswith("kernel"):
                np.subtract(weight, (rate * self._weight_decay * weight).astype(weight.dtype), out=weight)
            move = self._move(self._spec, name, gradients[name], step)
            np.subtract(weight, (rate * move).astype(weight.dtype), out=weight)

    def state(self) -> dict[str, NDArray[np.generic]]:
        return {
            f"{name}.{slot}": values[name].copy()
            for name in self._weights
            for slot, values in (("first", self._first), ("second", self._second))
        }

    def restore(self, state: Mapping[str, NDArray[np.generic]]) -> None:
        for name, weight in self._weights.items():
            self._first[name] = state[f"{name}.first"].astype(weight.dtype)
            self._second[name] = state[f"{name}.second"].astype(weight.dtype)

    def _move(self, spec: Optimizer, name: str, gradient: Matrix, step: int) -> Matrix:
        match spec:
            case Sgd():
                self._first[name] = spec.momentum * self._first[name] + gradient
                return gradient + spec.momentum * self._first[name] if spec.nesterov else self._first[name]
            case RmsProp():
                self._second[name] = spec.rho * self._second[name] + (1 - spec.rho) * gradient**2
                scaled = gradient / (np.sqrt(self._second[name]) + spec.epsilon)
                self._first[name] = spec.momentum * self._first[name] + scaled
                return self._first[name]
            case Adagrad():
                self._second[name] = self._second[name] + gradient**2
                return np.asarray(gradient / (np.sqrt(self._second[name]) + spec.epsilon))
            case Adam() | AdamW():
                self._first[name] = spec.beta_1 * self._first[name] + (1 - spec.beta_1) * gradient
                self._second[name] = spec.beta_2 * self._second[name] + (1 - spec.beta_2) * gradient**2
                mean = self._first[name] / (1 - spec.beta_1**step)
                square = self._second[name] / (1 - spec.beta_2**step)
                return np.asarray(mean / (np.sqrt(square) + spec.epsilon))
