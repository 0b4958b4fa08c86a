"""A model, its optimizer and its data in TensorFlow: a chunk of steps is one call into one graph.

The graph takes batches of any size, so an uneven last batch costs no second trace. XLA stays off: with the optimizers'
own kernels the plain loop is within some 10 % of it on dense nets (124 000 rows/s against 139 000, MLP 784-256-10,
batches of 32) and compiles in 0.15 s instead of 0.5 to 0.8.
"""

from collections.abc import Callable, Mapping
from typing import Any

from workers.backends.base import Program, Steps
from workers.backends.hashing import dropouts, step_keys
from workers.backends.initial import Weights
from workers.backends.tensorflow.dropout import Dropout, word_type
from workers.backends.tensorflow.framework import tf
from workers.backends.tensorflow.layers import forward
from workers.backends.tensorflow.losses import LOSSES, sums_of
from workers.backends.tensorflow.optimizers import optimizer_for
from workers.data.arrays import Arrays
from workers.data.metrics import Sums
from workers.data.split import PartName

Tensor = Any


class TensorFlowSession:
    """See `workers.backends.base.Session`."""

    def __init__(self, program: Program, weights: Weights, parts: Mapping[PartName, Arrays], device_kind: str) -> None:
        self._program = program
        self._dtype = tf.as_dtype(program.dtype)
        self._parts = {name: (tf.constant(part.x, self._dtype), tf.constant(part.y)) for name, part in parts.items()}
        self._weights = {name: tf.Variable(tf.constant(value, self._dtype)) for name, value in weights.items()}
        self._trained = list(self._weights.values())
        self._kernels = [value for name, value in self._weights.items() if name.endswith(".kernel")]
        self._loss = LOSSES[program.loss]
        self._optimizer = optimizer_for(program.optimizer, self._trained)
        self._layers = dropouts(program.layers, parts["train"].x.shape[1])
        self._dropout = Dropout(self._layers, program.batch_size, device_kind)
        self._train_graph = tf.function(
            self._train, input_signature=_train_signature(self._dtype, device_kind), autograph=False
        )
        self._look_graph = tf.function(self._look, input_signature=self._look_signature(), autograph=False)

    def run(self, steps: Steps, sums: Sums) -> Sums:
        words = step_keys(self._program.seed, len(self._layers), steps.first, len(steps))
        table = tf.constant(self._optimizer.table(steps.rates, steps.first), self._dtype)
        total = self._train_graph(tf.constant(steps.rows), table, self._dropout.keys(words), tf.constant(sums))
        return _numpy(total)

    def _train(self, rows: Tensor, table: Tensor, keys: Tensor, sums: Tensor) -> Tensor:
        count = tf.shape(rows)[0]

        def body(step: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
            return step + 1, total + self._step(rows[step], table[step], keys[step])

        state = (tf.constant(0), sums)
        return tf.while_loop(lambda step, _: step < count, body, state, parallel_iterations=1)[1]

    def _step(self, index: Tensor, row: Tensor, keys: Tensor) -> Tensor:
        x, y = (tf.gather(values, index) for values in self._parts["train"])
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(self._trained)
            logits = forward(self._program.layers, self._weights, x, self._drop(keys))
            loss = self._loss(logits, y)
            objective = loss / tf.cast(tf.shape(index)[0], self._dtype) + self._penalty()
        updates = self._optimizer.update(tape.gradient(objective, self._trained), row)
        with tf.control_dependencies(updates):
            return sums_of(loss, logits, y)

    def _drop(self, keys: Tensor) -> Callable[[Tensor, int], Tensor]:
        return lambda x, layer: self._dropout.apply(x, layer, keys[layer])

    def _penalty(self) -> Tensor:
        penalty = tf.constant(0.0, self._dtype)
        if self._program.l1:
            penalty += self._program.l1 * tf.add_n([tf.reduce_sum(tf.abs(kernel)) for kernel in self._kernels])
        if self._program.l2:
            penalty += self._program.l2 * tf.add_n([tf.reduce_sum(tf.square(kernel)) for kernel in self._kernels])
        return penalty

    def evaluate(self, part: PartName, start: int, stop: int, sums: Sums) -> Sums:
        x, y = (values[start:stop] for values in self._parts[part])
        return _numpy(self._look_graph(x, y, tf.constant(sums)))

    def _look(self, x: Tensor, y: Tensor, sums: Tensor) -> Tensor:
        logits = forward(self._program.layers, self._weights, x)
        return sums + sums_of(self._loss(logits, y), logits, y)

    def _look_signature(self) -> list[Any]:
        x, y = self._parts["train"]
        return [tf.TensorSpec([None, *values.shape[1:]], values.dtype) for values in (x, y)] + [
            tf.TensorSpec([None], tf.float64)
        ]

    def weights(self) -> Weights:
        return {name: value.numpy() for name, value in self._weights.items()}


def _train_signature(dtype: Any, device_kind: str) -> list[Any]:  # noqa: ANN401 - TensorFlow has no types
    return [
        tf.TensorSpec([None, None], tf.int64),
        tf.TensorSpec([None, None], dtype),
        tf.TensorSpec([None, None], word_type(device_kind)),
        tf.TensorSpec([None], tf.float64),
    ]


def _numpy(sums: Tensor) -> Sums:
    """Copy sums to the host; on a CUDA device this waits for all that was asked of it."""
    values: Sums = sums.numpy()
    return values
