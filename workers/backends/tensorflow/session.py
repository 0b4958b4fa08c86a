"""A model, its optimizer and its data in TensorFlow, on one device or several."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.backends.base import Program, SessionState, Steps
from workers.backends.hashing import dropouts, step_keys
from workers.backends.initial import WeightFacts, Weights, weight_facts
from workers.backends.tensorflow.chunk import Chunk
from workers.backends.tensorflow.dropout import Dropout
from workers.backends.tensorflow.framework import tf
from workers.backends.tensorflow.group import group_of
from workers.backends.tensorflow.layers import forward
from workers.backends.tensorflow.model import Model
from workers.data.arrays import Arrays
from workers.data.metrics import Sums
from workers.data.split import PartName

Tensor = Any


class TensorFlowSession:
    """See `workers.backends.base.Session`."""

    def __init__(self, program: Program, weights: Weights, parts: Mapping[PartName, Arrays], device_kind: str) -> None:
        self._program = program
        self._group = group_of(device_kind, program.world)
        self._model = Model.drawn(program, weights, self._group)
        self._parts = {
            name: self._group.mirrored(tf.constant(part.x, self._model.dtype)) for name, part in parts.items()
        }
        layers = dropouts(program.layers, program.input_shape)
        self._dropout = Dropout(layers, program.batch_size, device_kind)
        targets = self._group.mirrored(tf.constant(parts["train"].y))
        self._chunk = Chunk(program, self._model, self._dropout, [self._parts["train"], targets])
        self._units = int(self._model.weights[f"{program.layers[-1].name}.kernel"].shape[-1])
        rows = tf.TensorSpec([None, *parts["train"].x.shape[1:]], self._model.dtype)
        self._look_graph = tf.function(self._look, input_signature=[rows] * program.world, autograph=False)

    def run(self, steps: Steps, sums: Sums) -> Sums:
        words = step_keys(self._program.seed, self._dropout.count, steps.first, len(steps))
        table = tf.constant(self._model.optimizer.table(steps.rates, steps.first), self._model.dtype)
        total = self._chunk(tf.constant(steps.rows), table, self._dropout.keys(words), tf.constant(sums))
        values: Sums = total.numpy()  # on a CUDA device this waits for all that was asked of it
        return values

    def outputs(self, part: PartName, start: int, stop: int) -> NDArray[np.floating]:
        """Each device looks at its share of the rows; one without any looks at a row that is left out again."""
        if stop <= start:
            return np.zeros((0, self._units), self._program.dtype)
        shares = _shares(start, stop, self._group.world)
        blocks = [
            values[first : max(last, first + 1)]
            for values, (first, last) in zip(self._parts[part], shares, strict=True)
        ]
        found = zip(self._look_graph(*blocks), shares, strict=True)
        return np.concatenate([logits.numpy()[: last - first] for logits, (first, last) in found])

    def _look(self, *blocks: Tensor) -> list[Tensor]:
        logits = []
        for place, (block, device) in enumerate(zip(blocks, self._group.devices, strict=True)):
            with tf.device(device):
                weights = self._model.local_weights(place)
                logits.append(forward(self._program.layers, weights, block, product=self._model.product))
        return logits

    def facts(self) -> dict[str, WeightFacts]:
        return weight_facts(self._program.layers, self._program.input_shape)

    def weights(self) -> Weights:
        return self._model.copy_weights()

    def state(self) -> SessionState:
        return self._model.copy_state()

    def restore(self, weights: Weights, state: SessionState | None) -> None:
        self._model.restore(weights, state)

    def close(self) -> None:
        self._group.close()


def _shares(start: int, stop: int, world: int) -> list[tuple[int, int]]:
    """Cut a range of rows as `np.array_split` does; an empty share starts at a row that exists."""
    each, more = divmod(stop - start, world)
    shares = []
    for place in range(world):
        first = start + place * each + min(place, more)
        last = first + each + (place < more)
        shares.append((first, last) if last > first else (start, start))
    return shares
