"""The layers of `app.spec.layers` in TensorFlow: plain ops on plain variables."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from app.spec.layers import ActivationLayer, DenseLayer, Layer
from workers.backends.tensorflow.framework import tf

Tensor = Any

_SELU_SCALE: Final = 1.0507009873554805
_SELU_ALPHA: Final = 1.6732632423543772

ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "linear": lambda x: x,
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
    "sigmoid": tf.sigmoid,
    "elu": tf.nn.elu,
    "selu": lambda x: _SELU_SCALE * tf.where(x > 0, x, _SELU_ALPHA * tf.nn.elu(x)),  # at 0, tf.nn.selu is less steep
    "gelu": lambda x: 0.5 * x * (1.0 + tf.math.erf(x * math.sqrt(0.5))),  # tf.nn.gelu takes its root from float32
    "silu": tf.nn.silu,
    "softplus": tf.nn.softplus,
    "softsign": tf.nn.softsign,
}


def forward(
    layers: Sequence[Layer],
    weights: Mapping[str, Tensor],
    x: Tensor,
    drop: Callable[[Tensor, int], Tensor] | None = None,
) -> Tensor:
    """Return the logits of a batch; `drop(x, n)` applies the n-th dropout layer, None leaves dropout out."""
    dropouts = 0
    for layer in layers:
        if isinstance(layer, DenseLayer):
            x = tf.nn.bias_add(tf.matmul(x, weights[f"{layer.name}.kernel"]), weights[f"{layer.name}.bias"])
        elif isinstance(layer, ActivationLayer):
            x = ACTIVATIONS[layer.function](x)
        elif drop is not None:
            x = drop(x, dropouts)
            dropouts += 1
    return x
