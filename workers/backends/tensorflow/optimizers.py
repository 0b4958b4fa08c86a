"""The optimizers, as torch defines them, by TensorFlow's own update kernels: one op per variable and step.

A chunk's steps get a table of numbers computed here in float64, one row per step; an optimizer reads its row.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from app.spec.optimizers import Adagrad, Adam, AdamW, RmsProp, Sgd
from app.spec.training import Optimizer as OptimizerSpec
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

    def slots(self) -> dict[str, list[Any]]:
        """Return what is remembered of the gradients, by name: a variable for each weight, in their order."""
        ...

    def silent(self) -> list[Any]:
        """Return the variables in which an infinite number would stop the model without any loss showing it."""
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

    def slots(self) -> dict[str, list[Any]]:
        return {"velocity": self._velocities} if self._velocities else {}

    def silent(self) -> list[Any]:
        return []  # such a velocity makes the weights, and so the loss, as large


class AdamOptimizer:
    """`w -= rate m' / (sqrt(v') + epsilon)`, m' and v' bias-corrected, brought to a kernel that means another formula.

    The kernel computes `w -= rate sqrt(1 - b2^t) / (1 - b1^t) m / (sqrt(v) + epsilon)`: epsilon before the bias
    correction, and `1 - b` in the variable's precision, in float32 wrong by 1.3e-5 for b = 0.999. Told that the powers
    are 0 it only does `w -= rate m / (sqrt(v) + epsilon)`. So each step gets its own rate and epsilon, from float64;
    `k = (1 - b, rounded) / (1 - b)` is how much too large the kernel's m and v are.

    AdamW: `decays` holds the weight decay of each variable; before anything else `w -= rate decay w`.
    """

    def __init__(self, variables: Sequence[Any], spec: Adam | AdamW, decays: Sequence[float]) -> None:
        self._variables = list(variables)
        self._spec = spec
        self._decays = list(decays)
        self._means = [_zeros_like(variable) for variable in variables]
        self._squares = [_zeros_like(variable) for variable in variables]
        self._dtype = variables[0].dtype.as_numpy_dtype

    def table(self, rates: NDArray[np.float64], first: int) -> Table:
        steps = np.arange(first + 1, first + 1 + len(rates), dtype=np.float64)
        k1, k2 = (self._excess(beta) for beta in (self._spec.beta_1, self._spec.beta_2))
        root = np.sqrt(k2 * (1.0 - self._spec.beta_2**steps))
        moves = rates * root / (k1 * (1.0 - self._spec.beta_1**steps))
        return np.stack([moves, self._spec.epsilon * root, rates], axis=1)

    def _excess(self, beta: float) -> float:
        one = self._dtype(1.0)
        return float(one - self._dtype(beta)) / (1.0 - beta)

    def update(self, gradients: Sequence[Tensor], row: Tensor) -> list[Any]:
        zero, beta_1, beta_2 = (tf.constant(value, row.dtype) for value in (0.0, self._spec.beta_1, self._spec.beta_2))
        updates = []
        for place, (variable, gradient) in enumerate(zip(self._variables, gradients, strict=True)):
            with tf.control_dependencies(self._decayed(variable, self._decays[place], row[2])):
                update = tf.raw_ops.ResourceApplyAdam(
                    var=variable.handle,
                    m=self._means[place].handle,
                    v=self._squares[place].handle,
                    beta1_power=zero,
                    beta2_power=zero,
                    lr=row[0],
                    beta1=beta_1,
                    beta2=beta_2,
                    epsilon=row[1],
                    grad=gradient,
                )
            updates.append(update)
        return updates

    def _decayed(self, variable: Any, decay: float, rate: Tensor) -> list[Any]:  # noqa: ANN401 - TensorFlow has no types
        if not decay:
            return []
        return [tf.raw_ops.AssignSubVariableOp(resource=variable.handle, value=rate * decay * tf.identity(variable))]

    def slots(self) -> dict[str, list[Any]]:
        return {"mean": self._means, "square": self._squares}

    def silent(self) -> list[Any]:
        return self._squares  # the kernel makes NaN of an infinite one, but only two steps later


class RmsPropOptimizer:
    """`s = rho s + (1 - rho) g^2`, `b = momentum b + g / (sqrt(s) + epsilon)`, `w -= rate b`.

    Written out: TensorFlow's kernel has epsilon inside of the root, and the rate inside of b.
    """

    def __init__(self, variables: Sequence[Any], spec: RmsProp) -> None:
        self._variables = list(variables)
        self._spec = spec
        self._squares = [_zeros_like(variable) for variable in variables]
        self._velocities = [_zeros_like(variable) for variable in variables] if spec.momentum else []

    def table(self, rates: NDArray[np.float64], first: int) -> Table:  # noqa: ARG002 - the protocol
        return rates[:, None]

    def update(self, gradients: Sequence[Tensor], row: Tensor) -> list[Any]:
        updates = []
        for place, (variable, gradient) in enumerate(zip(self._variables, gradients, strict=True)):
            square = self._squares[place]
            fresh = self._spec.rho * tf.identity(square) + (1.0 - self._spec.rho) * tf.square(gradient)
            move = gradient / (tf.sqrt(fresh) + self._spec.epsilon)
            updates.append(tf.raw_ops.AssignVariableOp(resource=square.handle, value=fresh))
            if self._velocities:
                velocity = self._velocities[place]
                move = self._spec.momentum * tf.identity(velocity) + move
                updates.append(tf.raw_ops.AssignVariableOp(resource=velocity.handle, value=move))
            updates.append(tf.raw_ops.AssignSubVariableOp(resource=variable.handle, value=row[0] * move))
        return updates

    def slots(self) -> dict[str, list[Any]]:
        return {"square": self._squares} | ({"velocity": self._velocities} if self._velocities else {})

    def silent(self) -> list[Any]:
        return self._squares


class AdagradOptimizer:
    """`s += g^2`, `w -= rate g / (sqrt(s) + epsilon)`; the kernel defines it so too."""

    def __init__(self, variables: Sequence[Any], spec: Adagrad) -> None:
        self._variables = list(variables)
        self._spec = spec
        self._sums = [_zeros_like(variable, spec.initial_accumulator) for variable in variables]

    def table(self, rates: NDArray[np.float64], first: int) -> Table:  # noqa: ARG002 - the protocol
        return rates[:, None]

    def update(self, gradients: Sequence[Tensor], row: Tensor) -> list[Any]:
        epsilon = tf.constant(self._spec.epsilon, row.dtype)
        return [
            tf.raw_ops.ResourceApplyAdagradV2(
                var=variable.handle, accum=total.handle, lr=row[0], epsilon=epsilon, grad=gradient
            )
            for variable, total, gradient in zip(self._variables, self._sums, gradients, strict=True)
        ]

    def slots(self) -> dict[str, list[Any]]:
        return {"sum": self._sums}

    def silent(self) -> list[Any]:
        return self._sums


def optimizer_for(spec: OptimizerSpec, variables: Sequence[Any], decays: Sequence[float] | None = None) -> Optimizer:
    """Make the optimizer of these variables; `decays`: the weight decay of each, for AdamW, 0 where there is none."""
    match spec:
        case Sgd():
            return SgdOptimizer(variables, spec)
        case RmsProp():
            return RmsPropOptimizer(variables, spec)
        case Adagrad():
            return AdagradOptimizer(variables, spec)
        case _:
            return AdamOptimizer(variables, spec, decays or [0.0] * len(variables))


def _zeros_like(variable: Any, value: float = 0.0) -> Any:  # noqa: ANN401 - TensorFlow has no types
    return tf.Variable(tf.fill(variable.shape, tf.constant(value, variable.dtype)), trainable=False)
