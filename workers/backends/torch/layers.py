"""The layers of `app.spec.layers` in torch, channels last as they are written.

Weights stay in our shapes: dense kernels are (inputs, units), so nothing is transposed, and convolutions see theirs
through a permuted view.

Precision: products (dense, convolution, recurrent, embedding) are made in the pass's product type, and what they give
stays in it until a normalisation, which computes in the weights' own type and goes back. The output layer never leaves
the weights' type.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import torch
from torch import Tensor
from torch.nn import functional

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
from workers.backends.torch.convolution import OPERATIONS as CONVOLUTIONS
from workers.backends.torch.normalisation import OPERATIONS as NORMALISATIONS
from workers.backends.torch.passes import Drop, Operation, Pass, Statistics
from workers.backends.torch.recurrent import OPERATIONS as RECURRENCES

OUTPUT: Final = "output"
"""The layer whose values are the logits; it computes in the weights' own type, whatever the precision is."""

ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "linear": lambda x: x,
    "relu": torch.relu,
    "leaky_relu": functional.leaky_relu,  # its default slope is ours, 0.01
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "elu": functional.elu,
    "selu": torch.selu,
    "gelu": functional.gelu,  # the erf form is torch's default
    "silu": functional.silu,
    "softplus": lambda x: functional.softplus(x, threshold=40),  # the default, 20, cuts off 2e-9
    "softsign": functional.softsign,
}


def forward(
    layers: Sequence[Layer],
    weights: Mapping[str, Tensor],
    x: Tensor,
    drop: Drop | None = None,
    *,
    statistics: Statistics | None = None,
    product: torch.dtype | None = None,
) -> Tensor:
    """Return the logits of a batch.

    `drop(x, n)` applies the n-th dropout layer, depth first; None leaves dropout out. `statistics` normalises by the
    moments of the batch; None: by the moving ones. `product`: the type of products; None: the weights' own.
    """
    return _through(layers, x, Pass(weights, drop, statistics, product))


def _through(layers: Sequence[Layer], x: Tensor, call: Pass) -> Tensor:
    for layer in layers:
        x = _OPERATIONS[layer.type](layer, x, call)
    return x


def _dense(layer: DenseLayer, x: Tensor, call: Pass) -> Tensor:
    kernel = call.weights[f"{layer.name}.kernel"]
    bias = call.weights[f"{layer.name}.bias"] if layer.use_bias else None
    if layer.name == OUTPUT:
        x = x.to(kernel.dtype)
    elif call.product is not None:
        x, kernel, bias = x.to(call.product), kernel.to(call.product), None if bias is None else bias.to(call.product)
    if x.dim() == 2:  # noqa: PLR2004 - rows of features, by far the most frequent
        return x @ kernel if bias is None else torch.addmm(bias, x, kernel)
    rows = x.flatten(0, -2)
    y = rows @ kernel if bias is None else torch.addmm(bias, rows, kernel)
    return y.reshape(*x.shape[:-1], layer.units)


def _activation(layer: ActivationLayer, x: Tensor, call: Pass) -> Tensor:  # noqa: ARG001 - the protocol
    return ACTIVATIONS[layer.function](x)


def _dropout(layer: DropoutLayer, x: Tensor, call: Pass) -> Tensor:  # noqa: ARG001 - its rate is known to `drop`
    return call.dropped(x)


def _flatten(layer: FlattenLayer, x: Tensor, call: Pass) -> Tensor:  # noqa: ARG001 - the protocol
    return x.reshape(len(x), math.prod(x.shape[1:]))  # -1 means nothing to torch when there are no rows


def _reshape(layer: ReshapeLayer, x: Tensor, call: Pass) -> Tensor:  # noqa: ARG001 - the protocol
    return x.reshape(len(x), *layer.shape)


def _embedding(layer: EmbeddingLayer, x: Tensor, call: Pass) -> Tensor:
    # Looked up and then rounded: the same numbers as the other way round, and only the rows that are used.
    return call.factor(functional.embedding(x.long(), call.weights[f"{layer.name}.embeddings"]))


def _residual(layer: ResidualLayer, x: Tensor, call: Pass) -> Tensor:
    inside = _through(layer.layers, x, call)
    return inside + _through(layer.shortcut, x, call)


def _parallel(layer: ParallelLayer, x: Tensor, call: Pass) -> Tensor:
    outputs = [_through(branch, x, call) for branch in layer.branches]
    if layer.merge == "concat":
        return torch.cat(outputs, dim=-1)
    total = outputs[0]
    for output in outputs[1:]:
        total = total + output
    return total


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
