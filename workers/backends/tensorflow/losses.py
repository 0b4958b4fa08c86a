"""Losses and metrics as sums over the rows of a batch, from logits."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from workers.backends.tensorflow.framework import tf

Tensor = Any


def _cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits)


def _huber(logits: Tensor, y: Tensor) -> Tensor:
    """Half the square up to 1, then the distance minus one half; tf.keras has it too, but computes in float32."""
    distance = tf.abs(logits - y)
    return tf.where(distance < 1.0, 0.5 * tf.square(distance), distance - 0.5)


LOSSES: Final[Mapping[str, Callable[[Tensor, Tensor], Tensor]]] = {
    "cross_entropy": _cross_entropy,
    "mse": tf.math.squared_difference,
    "mae": lambda logits, y: tf.abs(logits - y),
    "huber": _huber,
}
"""Each gives one loss per row (and unit)."""


def loss_of(name: str, logits: Tensor, y: Tensor, class_weights: tuple[float, ...] | None) -> Tensor:
    """Return the sum over rows, each times the weight of its class, if classes have weights."""
    losses = LOSSES[name](logits, y)
    if class_weights is not None:
        losses *= tf.gather(tf.constant(class_weights, losses.dtype), y)
    return tf.reduce_sum(losses)


def sums_of(loss: Tensor, logits: Tensor, y: Tensor) -> Tensor:
    """Return what `workers.data.metrics` reads, float64: (loss, hits), or (loss, absolute, squared errors)."""
    wide = tf.float64
    if not y.dtype.is_floating:
        hits = tf.equal(tf.argmax(logits, axis=1, output_type=y.dtype), y)
        return tf.stack([tf.cast(loss, wide), tf.reduce_sum(tf.cast(hits, wide))])
    error = tf.cast(logits - y, wide)
    return tf.stack([tf.cast(loss, wide), tf.reduce_sum(tf.abs(error)), tf.reduce_sum(tf.square(error))])
