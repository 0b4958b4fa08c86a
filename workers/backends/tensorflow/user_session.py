"""A model of the user's own code in TensorFlow, on one device: their Keras model, everything else ours.

Every random generator of the model (Keras keeps one for each dropout layer, as a variable) is set anew in every step,
from the job's seed and the step: so a training that goes on from a checkpoint draws what it would have drawn. The ops
of `tf.random` have generators that nobody can set: with them, a resumed training draws other numbers.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.backends.base import Program, SessionState, Steps
from workers.backends.hashing import step_keys
from workers.backends.initial import WeightFacts, Weights
from workers.backends.tensorflow.chunk import Chunk
from workers.backends.tensorflow.dropout import Dropout
from workers.backends.tensorflow.framework import tf
from workers.backends.tensorflow.group import Alone, Share
from workers.backends.tensorflow.model import Model
from workers.backends.tensorflow.normalisation import BatchStatistics
from workers.backends.tensorflow.user_model import KerasUserModel
from workers.data.arrays import Arrays
from workers.data.metrics import Sums
from workers.data.split import PartName
from workers.user_model.entrypoint import Known
from workers.user_model.errors import UserCodeFailed
from workers.user_model.module import UserModule

Tensor = Any


class Draws(Dropout):
    """In the place of our dropout: a key of each step for each of the model's generators."""

    def __init__(self, generators: Sequence[Any]) -> None:
        super().__init__([], 1, "cpu")
        self.count = len(generators)


class UserChunk(Chunk):
    """A chunk of steps through the user's model. Losses that its layers add count as penalties do."""

    def __init__(
        self, program: Program, model: Model, draws: Draws, data: Sequence[Sequence[Tensor]], user: KerasUserModel
    ) -> None:
        self._user = user
        self._generators = user.generators
        super().__init__(program, model, draws, data)

    def _logits(self, x: Tensor, places: Tensor, share: Share, keys: Tensor, statistics: BatchStatistics) -> Tensor:  # noqa: ARG002 - those of our own layers
        for number, generator in enumerate(self._generators):
            generator.assign(tf.stack([tf.cast(keys[number], generator.dtype), tf.zeros([], generator.dtype)]))
        return self._user.logits(x, train=True)

    def _penalty(self, like: Tensor) -> Tensor:
        added = [tf.cast(loss, like.dtype) for loss in self._user.native.losses]
        penalty = super()._penalty(like)
        return penalty + tf.add_n(added) if added else penalty


class UserTensorFlowSession:
    """See `workers.backends.base.Session`. `known`: which errors are the framework's own."""

    def __init__(
        self, program: Program, module: UserModule, parts: Mapping[PartName, Arrays], known: Known = lambda _: None
    ) -> None:
        if program.world > 1:
            raise UserCodeFailed(
                "A python model trains on one device with TensorFlow, and this job has "
                f"{program.world}: use device_count 1, or framework 'torch'."
            )
        self._program = program
        self._user = KerasUserModel(module, program.dtype, program.precision, known)
        variables = {path: variable.value for path, variable in self._user.variables.items()}
        trained = self._user.trained
        kernels = [path for path, variable in trained.items() if variable.shape.rank > 1]
        group = Alone()
        self._model = Model(program, variables, list(trained), kernels, group)
        self._parts = {name: tf.constant(part.x, self._model.dtype) for name, part in parts.items()}
        self._draws = Draws(self._user.generators)
        targets = tf.constant(parts["train"].y)
        self._chunk = UserChunk(program, self._model, self._draws, [[self._parts["train"]], [targets]], self._user)
        rows = tf.TensorSpec([None, *parts["train"].x.shape[1:]], self._model.dtype)
        self._look = tf.function(lambda x: self._user.logits(x, train=False), input_signature=[rows], autograph=False)

    def run(self, steps: Steps, sums: Sums) -> Sums:
        words = step_keys(self._program.seed, self._draws.count, steps.first, len(steps))
        table = tf.constant(self._model.optimizer.table(steps.rates, steps.first), self._model.dtype)
        total = self._chunk(tf.constant(steps.rows), table, self._draws.keys(words), tf.constant(sums))
        values: Sums = total.numpy()
        return values

    def outputs(self, part: PartName, start: int, stop: int) -> NDArray[np.floating]:
        if stop <= start:
            return np.zeros((0, self._user.units), self._program.dtype)
        logits: NDArray[np.floating] = self._look(self._parts[part][start:stop]).numpy()
        return logits

    def facts(self) -> dict[str, WeightFacts]:
        return self._user.facts()

    def weights(self) -> Weights:
        return self._user.weights()

    def state(self) -> SessionState:
        return self._model.copy_state()

    def restore(self, weights: Weights, state: SessionState | None) -> None:
        self._user.load(weights)
        if state is not None:
            self._model.restore_state(state)

    def close(self) -> None:
        """Nothing to give back: the device's memory goes with the process."""
