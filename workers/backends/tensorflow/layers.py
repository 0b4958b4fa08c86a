"""The layers of `app.spec.layers` in TensorFlow: plain ops on plain variables, channels last as they are written.

Precision: products (dense, convolution, recurrent, embedding) are made in the pass's product type, and what they give
stays in it until a normalisation, which computes in the weights' own type and goes back. The output layer never leaves
the weights' type.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from app.spec.layers import (
    ActivationLayer,
    DenseLayer,
    DropoutLayer,
    EmbeddingLayer,
    FlattenLayer,
    Layer,
    ParallelLayer,
    ReshapeLayer,
    ResidualLayer,
)
from workers.backends.tensorflow.convolution import OPERATIONS as CONVOLUTIONS
from workers.backends.tensorflow.framework import tf
from workers.backends.tensorflow.normalisation import OPERATIONS as NORMALISATIONS
from workers.backends.tensorflow.passes import Operation, Pass, Statistics, Tensor
from workers.backends.tensorflow.recurrent import OPERATIONS as RECURRENCES

_SELU_SCALE: Final = 1.0507009873554805
_SELU_ALPHA: Final = 1.6732632423543772

ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "linear": lambda x: x,
    "relu": tf.nn.relu,
    "leaky_relu": lambda x: tf.where(x > 0, x, 0.01 * x),  # tf.nn.leaky_relu rounds its slope to float32
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
    *,
    statistics: Statistics | None = None,
    product: Any = None,  # noqa: ANN401 - TensorFlow has no types
) -> Tensor:
    """Return the logits of a batch.

    `drop(x, n)` applies the n-th dropout layer, depth first; None leaves dropout out. `statistics` gives batch norm the
    moments of the batch and keeps them; None: the moving ones. `product`: the type of products; None: the weights' own.
    """
    return _through(layers, tf.convert_to_tensor(x), Pass(weights, drop, statistics, product))


def _through(layers: Sequence[Layer], x: Tensor, call: Pass) -> Tensor:
    for layer in layers:
        x = _OPERATIONS[layer.type](layer, x, call)
    return x


def _dense(layer: DenseLayer, x: Tensor, call: Pass) -> Tensor:
    kernel = call.weights[f"{layer.name}.kernel"]
    x, kernel = (x, kernel) if call.product is None else call.factors(x, kernel, whole=layer.name == "output")
    y = tf.matmul(x, kernel) if x.shape.rank == 2 else tf.tensordot(x, kernel, 1)  # noqa: PLR2004 - rows of features
    return call.biased(y, layer.name) if layer.use_bias else y


def _activation(layer: ActivationLayer, x: Tensor, call: Pass) -> Tensor:  # noqa: ARG001 - the protocol
    return ACTIVATIONS[layer.function](x)


def _dropout(layer: DropoutLayer, x: Tensor, call: Pass) -> Tensor:  # noqa: ARG001 - its rate is known to `drop`
    return call.dropped(x)


def _flatten(layer: FlattenLayer, x: Tensor, call: Pass) -> Tensor:  # noqa: ARG001 - the protocol
    return tf.reshape(x, [-1, math.prod(x.shape[1:])])


def _reshape(layer: ReshapeLayer, x: Tensor, call: Pass) -> Tensor:  # noqa: ARG001 - the protocol
    return tf.reshape(x, [-1, *layer.shape])


def _embedding(layer: EmbeddingLayer, x: Tensor, call: Pass) -> Tensor:
    table = call.factor(call.weights[f"{layer.name}.embeddings"])
    return tf.gather(table, tf.cast(x, tf.int64))


def _residual(layer: ResidualLayer, x: Tensor, call: Pass) -> Tensor:
    inside = _through(layer.layers, x, call)
    return _added(inside, _through(layer.shortcut, x, call))


def _parallel(layer: ParallelLayer, x: Tensor, call: Pass) -> Tensor:
    outputs = [_through(branch, x, call) for branch in layer.branches]
    if layer.merge == "concat":
        wide = _widest(outputs)
        return tf.concat([tf.cast(output, wide) for output in outputs], axis=-1)
    total = outputs[0]
    for output in outputs[1:]:
        total = _added(total, output)
    return total


def _added(one: Tensor, other: Tensor) -> Tensor:
    wide = _widest([one, other])
    return tf.cast(one, wide) + tf.cast(other, wide)


def _widest(values: Sequence[Tensor]) -> Any:  # noqa: ANN401 - TensorFlow has no types
    """Return the type that loses nothing; only in half precision is there more than one."""
    return max((value.dtype for value in values), key=lambda dtype: dtype.size)


_OPERATIONS: Final[Mapping[str, Operation]] = cast(
    "Mapping[str, Operation]",
    {
        "dense": _dense,
        "activation": _activation,
        "dropout": _dropout,
        "flatten": _flatten,
        "reshape": _reshape,
        "embedding": _embedding,
        "residual": _residual,
        "parallel": _parallel,
        **CONVOLUTIONS,
        **NORMALISATIONS,
        **RECURRENCES,
    },
)
