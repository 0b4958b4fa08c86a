"""From the loss of a step to moved weights: gradients, their sum over the ranks, penalties, clipping, the optimizer."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from workers.backends.base import Program
from workers.backends.torch.gradients import Penalty, clipped
from workers.backends.torch.group import Group
from workers.backends.torch.optimizers import optimizer_for
from workers.backends.torch.precision import LossScale, Undo


class Updates:
    """The trained weights of a model, and all that is remembered from step to step to move them."""

    def __init__(
        self,
        program: Program,
        trained: Mapping[str, Tensor],
        kernels: Collection[str],
        group: Group,
        device: torch.device,
    ) -> None:
        """`kernels`: names of the trained weights that penalties and weight decay are for."""
        self._program = program
        self._group = group
        self._names = list(trained)
        self._trained = list(trained.values())
        places = [place for place, name in enumerate(self._names) if name in kernels]
        self._penalty = Penalty([self._trained[place] for place in places], places, program.l1, program.l2)
        decays = [program.weight_decay if name in kernels else 0.0 for name in self._names]
        self._optimizer = optimizer_for(program.optimizer, self._trained, decays)
        self._scale = LossScale(device) if program.precision == "float16" else None

    def undo(self, tensors: Iterable[Tensor]) -> Undo | None:
        """Remember what a step may have to be taken back from, with a loss scale: these tensors, and the slots."""
        return None if self._scale is None else Undo([*tensors, *self._remembered().values()])

    def move(self, objective: Tensor, rate: float, step: int, undo: Undo | None) -> None:
        """Differentiate, sum over the ranks, and let the optimizer move the weights."""
        scale, finite = self._scale, None
        found = self._differentiated(objective if scale is None else scale.up(objective))
        gradients = self._group.sums([gradient.contiguous() for gradient in found])
        if scale is not None:
            gradients, finite = scale.down(gradients)
        gradients = clipped(self._penalty.added(gradients), self._program.clip_value, self._program.clip_norm)
        self._optimizer.update(gradients, rate, step)
        if scale is not None and finite is not None and undo is not None:
            undo.unless(finite)
            scale.move(finite)

    def _differentiated(self, objective: Tensor) -> Sequence[Tensor]:
        if self._program.module is None:
            return torch.autograd.grad(objective, self._trained)
        # A user's model may leave a weight out, and make sparse gradients.
        found = torch.autograd.grad(objective, self._trained, allow_unused=True, materialize_grads=True)
        return [gradient.to_dense() if gradient.is_sparse else gradient for gradient in found]

    def stuck(self) -> bool:
        """Whether the optimizer can move nothing any more; waits for the device."""
        return self._optimizer.overflowed() or (self._scale is not None and self._scale.lost())

    def slots(self) -> dict[str, Tensor]:
        """All that is remembered, by name, the loss scale too."""
        return self._remembered() | ({} if self._scale is None else self._scale.slots())

    def _remembered(self) -> dict[str, Tensor]:
        return {
            f"{name}.{slot}": tensor
            for slot, tensors in self._optimizer.slots.items()
            for name, tensor in zip(self._names, tensors, strict=True)
        }
