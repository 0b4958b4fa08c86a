"""What happens to gradients between the backward pass and the optimizer.

Nothing here writes into a gradient: two of them may be one tensor (the biases of two branches that are added, for one).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from workers.backends.torch import kernels

_CUSHION = 1e-6
"""Added to the norm before dividing by it, as torch's `clip_grad_norm_` does."""


class Penalty:
    """`l1 sum |w| + l2 sum w²` over the kernels, as an addition to their gradients: `l1 sign(w) + 2 l2 w`."""

    def __init__(self, weights: Sequence[Tensor], places: Sequence[int], l1: float, l2: float) -> None:
        """`places`: where the gradients of these weights, the kernels, stand among those of all trained weights."""
        self._weights = list(weights)
        self._places = list(places)
        self._l1 = l1
        self._l2 = l2

    @torch.no_grad()
    def added(self, gradients: Sequence[Tensor]) -> Sequence[Tensor]:
        if not self._weights or not (self._l1 or self._l2):
            return gradients
        result = list(gradients)
        moves = [result[place] for place in self._places]
        if self._l1:
            moves = list(kernels.add(moves, kernels.sign(self._weights), alpha=self._l1))
        if self._l2:
            moves = list(kernels.add(moves, self._weights, alpha=2.0 * self._l2))
        for place, move in zip(self._places, moves, strict=True):
            result[place] = move
        return result


def clipped(gradients: Sequence[Tensor], clip_value: float | None, clip_norm: float | None) -> Sequence[Tensor]:
    """Cut every number to [-clip_value, clip_value], then scale all by `min(1, clip_norm / (norm + 1e-6))`.

    The norm is the L2 norm of all gradients together. Where it is not finite the gradients become NaN: scaled by 0
    they would leave the model standing still with a finite loss.
    """
    result = gradients
    if clip_value is not None:
        result = kernels.clamp_max(kernels.clamp_min(list(result), -clip_value), clip_value)
    if clip_norm is not None:
        norm = torch.stack(kernels.norm(list(result))).norm()
        factor = (clip_norm / (norm + _CUSHION)).clamp(max=1.0)
        factor = torch.where(norm.isfinite(), factor, float("nan"))
        result = kernels.mul(list(result), factor)
    return result
