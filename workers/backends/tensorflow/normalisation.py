"""Batch norm with the statistics of the whole batch, on however many devices it lies, and layer norm.

Both compute in the type of their weights and give back the type that came in.
"""

from collections.abc import Mapping
from typing import Any, Final

from app.spec.layers import BatchNormLayer, LayerNormLayer
from workers.backends.tensorflow.framework import tf
from workers.backends.tensorflow.group import Group, Share
from workers.backends.tensorflow.passes import Operation, Pass, Tensor


def _batch_norm(layer: BatchNormLayer, x: Tensor, call: Pass) -> Tensor:
    gamma, beta, mean, variance = (
        call.weights[f"{layer.name}.{name}"] for name in ("gamma", "beta", "moving_mean", "moving_variance")
    )
    wide = tf.cast(x, gamma.dtype)
    if call.statistics is not None:
        mean, variance = call.statistics.moments(layer, wide)
    return tf.cast(_normalised(wide, mean, variance, layer.epsilon, gamma, beta), x.dtype)


def _layer_norm(layer: LayerNormLayer, x: Tensor, call: Pass) -> Tensor:
    gamma, beta = (call.weights[f"{layer.name}.{name}"] for name in ("gamma", "beta"))
    wide = tf.cast(x, gamma.dtype)
    mean, variance = tf.nn.moments(wide, [-1], keepdims=True)
    return tf.cast(_normalised(wide, mean, variance, layer.epsilon, gamma, beta), x.dtype)


def _normalised(x: Tensor, mean: Tensor, variance: Tensor, epsilon: float, gamma: Tensor, beta: Tensor) -> Tensor:
    """`gamma (x - mean) / sqrt(variance + epsilon) + beta`; centred first, which keeps digits where x is large."""
    return (x - mean) * (tf.math.rsqrt(variance + epsilon) * gamma) + beta


class BatchStatistics:
    """The moments of one batch that lies on the devices of a group, and what they make of the moving statistics.

    Two passes, the mean first and then the centred squares: one pass over squares loses as many digits as the mean is
    larger than the deviation. Gradients are exact, also through the sums over devices.
    """

    def __init__(self, group: Group, share: Share) -> None:
        self._group = group
        self._share = share
        self._seen: list[tuple[BatchNormLayer, Tensor, Tensor]] = []

    def moments(self, layer: BatchNormLayer, x: Tensor) -> tuple[Tensor, Tensor]:
        axes = list(range(x.shape.rank - 1))
        mean, variance = tf.nn.moments(x, axes) if self._group.world == 1 else self._over_devices(x, axes)
        self._seen.append((layer, mean, variance))
        return mean, variance

    def _over_devices(self, x: Tensor, axes: list[int]) -> tuple[Tensor, Tensor]:
        places = 1
        for size in x.shape[1:-1]:
            places *= size
        count = tf.cast(self._share.rows * places, x.dtype)
        live = tf.cast(self._share.live, x.dtype)
        (total,) = self._group.sum([live * tf.reduce_sum(x, axes)])
        mean = total / count
        (squares,) = self._group.sum([live * tf.reduce_sum(tf.square(x - mean), axes)])
        return mean, squares / count

    def updates(self, weights: Mapping[str, Any]) -> list[Any]:
        """Return the operations that move the moving statistics towards those of this batch."""
        made = []
        for layer, mean, variance in self._seen:
            for name, value in (("moving_mean", mean), ("moving_variance", variance)):
                old = weights[f"{layer.name}.{name}"]
                new = layer.momentum * tf.identity(old) + (1.0 - layer.momentum) * value
                made.append(tf.raw_ops.AssignVariableOp(resource=old.handle, value=new))
        return made


OPERATIONS: Final[dict[str, Operation]] = {"batch_norm": _batch_norm, "layer_norm": _layer_norm}
