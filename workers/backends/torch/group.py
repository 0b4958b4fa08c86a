"""One device or several as one: which rows of a batch are whose, and sums over all.

Every rank holds all weights and all rows and computes its share of each batch. What is summed over the ranks is the
same on each of them to the bit, so each makes the same update.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Group(Protocol):
    """The devices of a job."""

    rank: int
    world: int

    def sum(self, tensor: Tensor) -> Tensor:
        """Sum over the ranks, in place, without a gradient."""
        ...

    def sums(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        """Sum each of several tensors over the ranks, at once."""
        ...

    def in_order(self, tensor: Tensor) -> Tensor:
        """Sum over the ranks in the order of their numbers, so that the result of each element has one order alone.

        `sum` may add another element in another order, depending on where in a tensor it stands.
        """
        ...


class Alone:
    """A single device: everything is what it is."""

    rank = 0
    world = 1

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def sums(self, tensors: Sequence[Tensor]) -> Sequence[Tensor]:
        return tensors

    def in_order(self, tensor: Tensor) -> Tensor:
        return tensor


class Together:
    """One of several ranks; its process has joined the others (see `workers.backends.torch.ranks`)."""

    def __init__(self, rank: int, world: int) -> None:
        self.rank = rank
        self.world = world

    def sum(self, tensor: Tensor) -> Tensor:
        tensor = tensor.contiguous()
        dist.all_reduce(tensor)
        return tensor

    def sums(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        flat = self.sum(torch.cat([tensor.reshape(-1) for tensor in tensors]))
        parts = torch.split(flat, [tensor.numel() for tensor in tensors])
        return [part.view(tensor.shape) for part, tensor in zip(parts, tensors, strict=True)]

    def in_order(self, tensor: Tensor) -> Tensor:
        every = [torch.empty_like(tensor) for _ in range(self.world)]
        dist.all_gather(every, tensor.contiguous())
        total = every[0]
        for each in every[1:]:
            total = total + each
        return total


def share(count: int, rank: int, world: int) -> slice:
    """Return which of `count` rows are this rank's, as `np.array_split` cuts; it may be none."""
    each, more = divmod(count, world)
    start = rank * each + min(rank, more)
    return slice(start, start + each + (rank < more))
