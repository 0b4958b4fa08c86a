"""The hash dropout of `workers.backends.hashing` in TensorFlow.

On the CPU words are uint32, which wrap by themselves. On a CUDA device they are int64, cut back to 32 bits after each
multiplication: TensorFlow keeps 32-bit integers of a GPU in the host's memory, and would copy each mask to and fro.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.spec.layers import DropoutLayer
from workers.backends.hashing import MULTIPLIERS, SHIFTS, WORD, places, threshold
from workers.backends.tensorflow.framework import tf
from workers.backends.tensorflow.group import Share

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
    """The dropout layers of a model; one table of hashed places, as long as the widest layer needs, serves them all."""

    def __init__(self, layers: Sequence[tuple[DropoutLayer, int]], rows: int, device_kind: str) -> None:
        self.word = word_type(device_kind)
        self.count = len(layers)
        self._rates = [layer.rate for layer, _ in layers]
        self._widths = [width for _, width in layers]
        self.places = tf.constant(places(rows, max(self._widths, default=0)).ravel(), self.word)

    def keys(self, words: NDArray[np.uint32]) -> Tensor:
        """Bring a chunk's keys to the device, shape (steps, layers)."""
        return tf.constant(words, self.word)

    def over(self, places: Tensor, share: Share, keys: Tensor) -> Callable[[Tensor, int], Tensor]:
        """Return what drops values of the rows of a share, given a step's keys and the places on this device.

        The masks are those of the rows' places in the whole batch.
        """

        def drop(x: Tensor, layer: int) -> Tensor:
            rate, width = self._rates[layer], self._widths[layer]
            mask = keep(places[share.start * width : share.stop * width], keys[layer], rate)
            factor = tf.cast(mask, x.dtype) * tf.constant(1.0 / (1.0 - rate), x.dtype)
            return x * tf.reshape(factor, [-1, *x.shape[1:]])

        return drop
