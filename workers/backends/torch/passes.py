"""What a layer needs to know of one pass over a batch besides its input."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from app.spec.layers import BatchNormLayer

Drop = Callable[[Tensor, int], Tensor]
"""Applies the n-th dropout layer, counted depth first."""


class Statistics(Protocol):
    """Normalises a batch by its own moments, for batch norm while training."""

    def normalised(self, layer: BatchNormLayer, x: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """Return the batch normalised over all devices, and move the layer's moving statistics."""
        ...


class Pass:
    """One pass: the weights, and whether it trains. It counts the dropout layers that it comes by.

    `product`: the type in which products are made; None: that of the weights.
    """

    __slots__ = ("_drop", "_dropouts", "product", "statistics", "weights")

    def __init__(
        self,
        weights: Mapping[str, Tensor],
        drop: Drop | None = None,
        statistics: Statistics | None = None,
        product: torch.dtype | None = None,
    ) -> None:
        self.weights = weights
        self.statistics = statistics
        self.product = product
        self._drop = drop
        self._dropouts = 0

    def dropped(self, x: Tensor) -> Tensor:
        """Apply the next dropout layer."""
        if self._drop is None:
            return x
        self._dropouts += 1
        return self._drop(x, self._dropouts - 1)

    def factor(self, value: Tensor) -> Tensor:
        """Bring what goes into a product to the type of products."""
        return value if self.product is None else value.to(self.product)


class Operation(Protocol):
    """What a layer does to a batch."""

    def __call__(self, layer: Any, x: Tensor, call: Pass) -> Tensor: ...  # noqa: ANN401 - any layer
