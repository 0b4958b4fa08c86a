"""Losses and metrics as sums over the rows of a batch, from logits."""

from collections.abc import Callable, Mapping
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

LOSSES: Final[Mapping[str, Callable[[Tensor, Tensor, Tensor | None], Tensor]]] = {
    "cross_entropy": lambda logits, y, weights: functional.cross_entropy(logits, y, weights, reduction="sum"),
    "mse": lambda logits, y, _: functional.mse_loss(logits, y, reduction="sum"),
    "mae": lambda logits, y, _: functional.l1_loss(logits, y, reduction="sum"),
    "huber": lambda logits, y, _: functional.huber_loss(logits, y, reduction="sum", delta=1.0),
}
"""Each gives the sum over rows, each times the weight of its class, if classes have weights.

With `reduction="mean"` torch divides by the sum of the weights; ours is divided by the number of rows.
"""


def sums_of(loss: Tensor, logits: Tensor, y: Tensor) -> Tensor:
    """Return what `workers.data.metrics` reads, float64: (loss, hits), or (loss, absolute, squared errors)."""
    if not y.is_floating_point():
        hits = (logits.argmax(dim=1) == y).sum()
        return torch.stack([loss.double(), hits.double()])
    error = (logits - y).double()
    return torch.stack([loss.double(), error.abs().sum(), error.square().sum()])
