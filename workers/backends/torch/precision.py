"""Half precision: the type of products, and the scale that keeps float16 gradients from vanishing.

On the CPU both half types run: bfloat16 fast where the processor knows it, float16 slowly, and its convolutions by
rounding to float16 and multiplying in float32. So a spec with half precision trains on any device, with one meaning.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import torch
from torch import Tensor

from workers.backends.torch import kernels

HALVES: Final[Mapping[str, torch.dtype]] = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""bfloat16 reaches as far as float32, so only float16 needs a scale."""

START: Final = 2.0**15
GROWTH_INTERVAL: Final = 2000
SMALLEST: Final = 1.0


class LossScale:
    """A factor of the loss, doubled after 2000 steps with finite gradients, halved at each overflow; never below 1.

    All of it happens on the device, and nothing waits for it. After an overflow nothing moves: neither weights nor what
    the optimizer remembers nor moving statistics.
    """

    def __init__(self, device: torch.device) -> None:
        self.scale = torch.tensor(START, dtype=torch.float32, device=device)
        self.good_steps = torch.tensor(0.0, dtype=torch.float32, device=device)
        self._lost = torch.zeros((), dtype=torch.bool, device=device)

    def slots(self) -> dict[str, Tensor]:
        return {"loss_scale.scale": self.scale, "loss_scale.good_steps": self.good_steps}

    def up(self, objective: Tensor) -> Tensor:
        return objective * self.scale

    def down(self, gradients: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """Return the gradients without the scale, and whether all of them are finite."""
        largest = torch.stack(kernels.norm(list(gradients), float("inf")))
        return list(kernels.mul(list(gradients), 1.0 / self.scale)), largest.isfinite().all()

    def move(self, finite: Tensor) -> None:
        """Move the scale after a step."""
        # Gradients that overflow without any scale are those of a model that has diverged, and stay lost: what a chunk
        # of steps says must not depend on which of them is the last.
        self._lost = self._lost | (finite.logical_not() & (self.scale <= SMALLEST))
        good = self.good_steps + 1.0
        grown = good >= GROWTH_INTERVAL
        risen, fallen = torch.where(grown, 2.0 * self.scale, self.scale), (0.5 * self.scale).clamp(min=SMALLEST)
        self.scale.copy_(torch.where(finite, risen, fallen))
        self.good_steps.copy_(torch.where(finite & ~grown, good, 0.0))

    def lost(self) -> bool:
        """Whether a step overflowed with the smallest scale there is; waits for the device."""
        return bool(self._lost)


class Undo:
    """What tensors were before a step; goes back to it where the step turns out to have been a bad one."""

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        self._tensors = tensors
        self._before = [tensor.detach().clone() for tensor in tensors]

    @torch.no_grad()
    def unless(self, good: Tensor) -> None:
        for tensor, before in zip(self._tensors, self._before, strict=True):
            tensor.copy_(torch.where(good, tensor, before))
