"""Half precision: the type of products, and the scale that keeps float16 gradients from vanishing.

On the CPU both half types run, and are slower than float32: TensorFlow has kernels for all our layers, few of them
fast. So a spec with half precision trains on any device, with the same meaning.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from workers.backends.tensorflow.framework import tf

Tensor = Any

HALVES: Final[Mapping[str, Any]] = {"bfloat16": tf.bfloat16, "float16": tf.float16}
"""bfloat16 reaches as far as float32, so only float16 needs a scale."""

START: Final = 2.0**15
GROWTH_INTERVAL: Final = 2000
SMALLEST: Final = 1.0


class LossScale:
    """A factor of the loss, doubled after 2000 steps with finite gradients, halved at each overflow; never below 1.

    All of it happens on the device. After an overflow nothing moves: neither weights nor moving statistics.
    """

    def __init__(self) -> None:
        self.scale = tf.Variable(START, trainable=False, dtype=tf.float32)
        self.good_steps = tf.Variable(0.0, trainable=False, dtype=tf.float32)

    def slots(self) -> dict[str, Any]:
        return {"loss_scale.scale": self.scale, "loss_scale.good_steps": self.good_steps}

    def up(self, objective: Tensor) -> Tensor:
        return objective * tf.identity(self.scale)

    def down(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        inverse = 1.0 / tf.identity(self.scale)
        return [gradient * inverse for gradient in gradients]

    def move(self, finite: Tensor) -> tuple[list[Any], Tensor]:
        """Return the operations that move the scale, and whether it can shrink no further.

        Gradients that overflow without any scale are those of a model that has diverged.
        """
        scale, good = tf.identity(self.scale), tf.identity(self.good_steps) + 1.0
        grown = good >= GROWTH_INTERVAL
        risen = tf.where(grown, 2.0 * scale, scale)
        fallen = tf.maximum(0.5 * scale, SMALLEST)
        lost = tf.logical_and(tf.logical_not(finite), scale <= SMALLEST)
        count = tf.where(tf.logical_and(finite, tf.logical_not(grown)), good, 0.0)
        moves = [
            tf.raw_ops.AssignVariableOp(resource=self.scale.handle, value=tf.where(finite, risen, fallen)),
            tf.raw_ops.AssignVariableOp(resource=self.good_steps.handle, value=count),
        ]
        return moves, lost


def all_finite(tensors: Sequence[Tensor]) -> Tensor:
    """Whether no number in any of the tensors is infinite or NaN."""
    return tf.reduce_all([tf.reduce_all(tf.math.is_finite(tensor)) for tensor in tensors])
