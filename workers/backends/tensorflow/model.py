"""A model's variables: weights, what the optimizer remembers, the loss scale; and how they come and go."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from app.spec.weights import weight_facts
from workers.backends.base import Program, SessionState
from workers.backends.initial import Weights
from workers.backends.tensorflow.framework import tf
from workers.backends.tensorflow.group import Group
from workers.backends.tensorflow.optimizers import optimizer_for
from workers.backends.tensorflow.precision import HALVES, LossScale


class Model:
    """The variables of a program, on all devices of a group."""

    def __init__(
        self,
        program: Program,
        weights: Mapping[str, Any],
        trained: Sequence[str],
        kernels: Collection[str],
        group: Group,
    ) -> None:
        """Take variables that were made in the group's scope. `kernels`: names that penalties and decay are for."""
        self.group = group
        self.dtype = tf.as_dtype(program.dtype)
        self.product = HALVES.get(program.precision)
        self.weights = dict(weights)
        self._names = list(trained)
        self.trained = [self.weights[name] for name in self._names]
        self.kernels = [value for name, value in self.weights.items() if name in kernels]
        decays = [program.weight_decay if name in kernels else 0.0 for name in self._names]
        with group.scope():
            self.optimizer = optimizer_for(program.optimizer, self.trained, decays)
            self.scale = LossScale() if program.precision == "float16" else None

    @classmethod
    def drawn(cls, program: Program, weights: Weights, group: Group) -> Self:
        """Make the variables of the program's layers, with these values."""
        facts, dtype = weight_facts(program.layers, program.input_shape), tf.as_dtype(program.dtype)
        with group.scope():
            variables = {
                name: tf.Variable(tf.constant(value, dtype), trainable=facts[name].trained)
                for name, value in weights.items()
            }
        trained = [name for name in variables if facts[name].trained]
        return cls(program, variables, trained, [name for name in variables if name.endswith("kernel")], group)

    def copy_weights(self) -> Weights:
        return {name: self._read(variable) for name, variable in self.weights.items()}

    def copy_state(self) -> SessionState:
        return {name: self._read(variable) for name, variable in self._state().items()}

    def restore(self, weights: Weights, state: SessionState | None) -> None:
        """Take what the two copies gave.

        Raises:
            KeyError: a weight, or something of the state, is not there.
        """
        _assign(self.weights, weights)
        if state is not None:
            self.restore_state(state)

    def restore_state(self, state: SessionState) -> None:
        """Take the state alone.

        Raises:
            KeyError: something of it is not there.
        """
        _assign(self._state(), state)

    def local_weights(self, place: int) -> dict[str, Any]:
        """Return the weights as one device of the group has them."""
        return {name: self.group.local(variable)[place] for name, variable in self.weights.items()}

    def _state(self) -> dict[str, Any]:
        state = {
            f"{name}.{slot}": variable
            for slot, variables in self.optimizer.slots().items()
            for name, variable in zip(self._names, variables, strict=True)
        }
        return state if self.scale is None else state | self.scale.slots()

    def _read(self, variable: Any) -> NDArray[Any]:  # noqa: ANN401 - TensorFlow has no types
        return np.array(self.group.local(variable)[0].numpy())


def _assign(variables: Mapping[str, Any], values: Mapping[str, NDArray[Any]]) -> None:
    for name, variable in variables.items():
        variable.assign(tf.constant(values[name], variable.dtype))
