"""The optimizers, as torch defines them, by TensorFlow's own update kernels: one op per variable and step.

A chunk's steps get a table of numbers computed here in float64, one row per step; an optimizer reads its row.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from app.spec.training import Adam, Sgd
from workers.backends.tensorflow.framework import tf

Tensor = Any
Table = NDArray[np.float64]


class Optimizer(Protocol):
    """Moves variables along gradients, inside a graph."""

    def table(self, rates: NDArray[np.float64], first: int) -> Table:
        """Return what the steps from `first` (counted from 0) need, shape (steps, numbers)."""
        ...

    def update(self, gradients: Sequence[Tensor], row: Tensor) -> list[Any]:
        """Return the operations that make one update, given the step's row of the table."""
        ...


class SgdOptimizer:
    """`v = momentum v + g`, `w -= rate v`; Nesterov: `w -= rate (g + momentum v)`. The kernels define it so too."""

    def __init__(self, variables: Sequence[Any], spec: Sgd) -> None:
        self._variables = list(variables)
        self._spec = spec
        self._velocities = [_zeros_like(variable) for variable in variables] if spec.momentum else []

    def table(self, rates: NDArray[np.float64], first: int) -> Table:  # noqa: ARG002 - the protocol
        return rates[:, None]

    def update(self, gradients: Sequence[Tensor], row: Tensor) -> list[Any]:
        if not self._velocities:
            return [
                tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=row[0], delta=gradient)
                for variable, gradient in zip(self._variables, gradients, strict=True)
            ]
        momentum = tf.constant(self._spec.momentum, row.dtype)
        return [
            tf.raw_ops.ResourceApplyMomentum(
                var=variable.handle,
                accum=velocity.handle,
                lr=row[0],
                grad=gradient,
                momentum=momentum,
                use_nesterov=self._spec.nesterov,
            )
            for variable, velocity, gradient in zip(self._variables, self._velocities, gradients, strict=True)
        ]


class AdamOptimizer:
    """`w -= rate m' / (sqrt(v') + epsilon)`, m' and v' bias-corrected, brought to a kernel that means another formula.

    The kernel computes `w -= rate sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + epsilon)`: epsilon before the bias
    correction, and `1 - b` in the variable's precision, in float32 wrong by 1.3e-5 for b = 0.999. Told that the powers
    are 0 it only does `w -= rate m / (sqrt(v) + epsilon)`. So each step gets its own rate and epsilon, from float64;
    `k = (1 - b, rounded) / (1 - b)` is how much too large the kernel's m and v are.
    """

    def __init__(self, variables: Sequence[Any], spec: Adam) -> None:
        self._variables = list(variables)
        self._spec = spec
        self._means = [_zeros_like(variable) for variable in variables]
        self._squares = [_zeros_like(variable) for variable in variables]
        self._dtype = variables[0].dtype.as_numpy_dtype

    def table(self, rates: NDArray[np.float64], first: int) -> Table:
        steps = np.arange(first + 1, first + 1 + len(rates), dtype=np.float64)
        k1, k2 = (self._excess(beta) for beta in (self._spec.beta_1, self._spec.beta_2))
        root = np.sqrt(k2 * (1.0 - self._spec.beta_2**steps))
        return np.stack([rates * root / (k1 * (1.0 - self._spec.beta_1**steps)), self._spec.epsilon * root], axis=1)

    def _excess(self, beta: float) -> float:
        one = self._dtype(1.0)
        return float(one - self._dtype(beta)) / (1.0 - beta)

    def update(self, gradients: Sequence[Tensor], row: Tensor) -> list[Any]:
        zero, beta_1, beta_2 = (tf.constant(value, row.dtype) for value in (0.0, self._spec.beta_1, self._spec.beta_2))
        return [
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=mean.handle,
                v=square.handle,
                beta1_power=zero,
                beta2_power=zero,
                lr=row[0],
                beta1=beta_1,
                beta2=beta_2,
                epsilon=row[1],
                grad=gradient,
            )
            for variable, mean, square, gradient in zip(
                self._variables, self._means, self._squares, gradients, strict=True
            )
        ]


def optimizer_for(spec: Sgd | Adam, variables: Sequence[Any]) -> Optimizer:
    return SgdOptimizer(variables, spec) if isinstance(spec, Sgd) else AdamOptimizer(variables, spec)


def _zeros_like(variable: Any) -> Any:  # noqa: ANN401 - TensorFlow has no types
    return tf.Variable(tf.zeros(variable.shape, variable.dtype), trainable=False)
