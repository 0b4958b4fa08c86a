"""The layers of `app.spec.layers` in torch. Kernels stay in our shape (inputs, units), so nothing is transposed."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from app.spec.layers import ActivationLayer, DenseLayer, Layer

ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "linear": lambda x: x,
    "relu": torch.relu,
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
    drop: Callable[[Tensor, int], Tensor] | None = None,
) -> Tensor:
    """Return the logits of a batch; `drop(x, n)` applies the n-th dropout layer, None leaves dropout out."""
    dropouts = 0
    for layer in layers:
        if isinstance(layer, DenseLayer):
            x = torch.addmm(weights[f"{layer.name}.bias"], x, weights[f"{layer.name}.kernel"])
        elif isinstance(layer, ActivationLayer):
            x = ACTIVATIONS[layer.function](x)
        elif drop is not None:
            x = drop(x, dropouts)
            dropouts += 1
    return x
