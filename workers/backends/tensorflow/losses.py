"""Losses and metrics as sums over the rows of a batch, from logits."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from workers.backends.tensorflow.framework import tf

Tensor = Any


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))


def _huber(logits: Tensor, y: Tensor) -> Tensor:
    """Half the square up to 1, then the distance minus one half; tf.keras has it too, but computes in float32."""
    distance = tf.abs(logits - y)
    return tf.reduce_sum(tf.where(distance < 1.0, 0.5 * tf.square(distance), distance - 0.5))


LOSSES: Final[Mapping[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "cross_entropy": _cross_entropy,
    "mse": lambda logits, y: tf.reduce_sum(tf.math.squared_difference(logits, y)),
    "mae": lambda logits, y: tf.reduce_sum(tf.abs(logits - y)),
    "huber": _huber,
}


def sums_of(loss: Tensor, logits: Tensor, y: Tensor) -> Tensor:
    """Return what `workers.data.metrics` reads, float64: (loss, hits), or (loss, absolute, squared errors)."""
    wide = tf.float64
    if not y.dtype.is_floating:
        hits = tf.equal(tf.argmax(logits, axis=1, output_type=y.dtype), y)
        return tf.stack([tf.cast(loss, wide), tf.reduce_sum(tf.cast(hits, wide))])
    error = tf.cast(logits - y, wide)
    return tf.stack([tf.cast(loss, wide), tf.reduce_sum(tf.abs(error)), tf.reduce_sum(tf.square(error))])
