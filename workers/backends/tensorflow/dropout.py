"""The hash dropout of `workers.backends.hashing` in TensorFlow.

On the CPU words are uint32, which wrap by themselves. On a CUDA device they are int64, cut back to 32 bits after each
multiplication: TensorFlow keeps 32-bit integers of a GPU in the host's memory, and would copy each mask to and fro.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.spec.layers import DropoutLayer
from workers.backends.hashing import MULTIPLIERS, SHIFTS, WORD, places, threshold
from workers.backends.tensorflow.framework import tf

Tensor = Any


def word_type(device_kind: str) -> Any:  # noqa: ANN401 - TensorFlow has no types
    return tf.int64 if device_kind == "cuda" else tf.uint32


def keep(place: Tensor, key: Tensor, rate: float) -> Tensor:
    """Return the mask of `hashing.kept`, from words of either type."""
    mixed = tf.bitwise.bitwise_xor(place, key)
    for shift, multiplier in zip(SHIFTS, MULTIPLIERS, strict=False):
        high = tf.bitwise.right_shift(mixed, tf.constant(shift, mixed.dtype))
        mixed = tf.bitwise.bitwise_xor(mixed, high) * tf.constant(multiplier, mixed.dtype)
        if mixed.dtype == tf.int64:
            mixed = tf.bitwise.bitwise_and(mixed, tf.constant(WORD - 1, tf.int64))
    return mixed < tf.constant(threshold(rate), mixed.dtype)


class Dropout:
    """The dropout layers of a model; the hashed places of the largest batch stay on the device."""

    def __init__(self, layers: Sequence[tuple[DropoutLayer, int]], rows: int, device_kind: str) -> None:
        self._word = word_type(device_kind)
        self._rates = [layer.rate for layer, _ in layers]
        self._places = [tf.constant(places(rows, width), self._word) for _, width in layers]

    def keys(self, words: NDArray[np.uint32]) -> Tensor:
        """Bring a chunk's keys to the device, shape (steps, layers)."""
        return tf.constant(words, self._word)

    def apply(self, x: Tensor, layer: int, key: Tensor) -> Tensor:
        """Drop values of a batch in the `layer`-th dropout layer; `key` is its key of this step."""
        rate = self._rates[layer]
        mask = keep(self._places[layer][: tf.shape(x)[0]], key, rate)
        return x * (tf.cast(mask, x.dtype) * tf.constant(1.0 / (1.0 - rate), x.dtype))
