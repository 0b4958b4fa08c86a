"""What happens to gradients between the tape and the optimizer: cut one by one, then scaled to a norm."""

from collections.abc import Sequence
from typing import Any

from workers.backends.tensorflow.framework import tf

Tensor = Any

_CUSHION = 1e-6
"""Added to the norm before dividing by it, as torch's `clip_grad_norm_` does."""


def clipped(gradients: Sequence[Tensor], clip_value: float | None, clip_norm: float | None) -> list[Tensor]:
    """Cut every number to [-clip_value, clip_value], then scale all by `min(1, clip_norm / (norm + 1e-6))`.

    The norm is the L2 norm of all gradients together. Where it is not finite the gradients become NaN: scaled by 0
    they would leave the model standing still with a finite loss.
    """
    result = list(gradients)
    if clip_value is not None:
        result = [tf.clip_by_value(gradient, -clip_value, clip_value) for gradient in result]
    if clip_norm is not None:
        norm = tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(gradient)) for gradient in result]))
        factor = tf.minimum(tf.constant(1.0, norm.dtype), clip_norm / (norm + _CUSHION))
        factor = tf.where(tf.math.is_finite(norm), factor, tf.constant(float("nan"), norm.dtype))
        result = [gradient * factor for gradient in result]
    return result
