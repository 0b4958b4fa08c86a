"""The optimizers, as torch defines them, on lists of tensors.

Not `torch.optim`: the constructor of any optimizer there imports the compiler (`torch._dynamo`, some 700 modules),
which takes longer than a small job. These call the kernels that `torch.optim` calls, and tests hold them to it.
"""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from app.spec.training import Adam, Sgd


class Optimizer(Protocol):
    """Moves weights along gradients, in place."""

    def update(self, gradients: Sequence[Tensor], rate: float, step: int) -> None:
        """Make update number `step`, counted from 1, at this learning rate; gradients are the caller's no longer."""
        ...

    def overflowed(self) -> bool:
        """Whether what is remembered of the gradients is not finite; waits for the device."""
        ...


class SgdOptimizer:
    """`v = momentum v + g`, `w -= rate v`; Nesterov: `w -= rate (g + momentum v)`. The rate is outside of v."""

    def __init__(self, weights: Sequence[Tensor], spec: Sgd) -> None:
        self._weights = list(weights)
        self._momentum = spec.momentum
        self._nesterov = spec.nesterov
        self._velocities = [torch.zeros_like(weight) for weight in weights] if spec.momentum else []

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor], rate: float, step: int) -> None:  # noqa: ARG002 - the protocol
        moves = list(gradients)
        if self._velocities:
            torch._foreach_mul_(self._velocities, self._momentum)
            torch._foreach_add_(self._velocities, moves)
            if self._nesterov:
                torch._foreach_add_(moves, self._velocities, alpha=self._momentum)
            else:
                moves = self._velocities
        torch._foreach_add_(self._weights, moves, alpha=-rate)

    def overflowed(self) -> bool:
        return False  # such a velocity makes the weights, and so the loss, as large


class AdamOptimizer:
    """`w -= rate m' / (sqrt(v') + epsilon)`, one fused kernel for all tensors (that of `Adam(fused=True)`)."""

    def __init__(self, weights: Sequence[Tensor], spec: Adam) -> None:
        self._weights = list(weights)
        self._spec = spec
        self._means = [torch.zeros_like(weight) for weight in weights]
        self._squares = [torch.zeros_like(weight) for weight in weights]
        self._step = torch.zeros((), dtype=torch.float32, device=self._weights[0].device)

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor], rate: float, step: int) -> None:
        self._step.fill_(step)
        torch._fused_adam_(
            self._weights,
            list(gradients),
            self._means,
            self._squares,
            [],
            [self._step] * len(self._weights),
            lr=rate,
            beta1=self._spec.beta_1,
            beta2=self._spec.beta_2,
            weight_decay=0.0,
            eps=self._spec.epsilon,
            amsgrad=False,
            maximize=False,
        )

    def overflowed(self) -> bool:
        return not all(bool(torch.isfinite(square).all()) for square in self._squares)


def optimizer_for(spec: Sgd | Adam, weights: Sequence[Tensor]) -> Optimizer:
    return SgdOptimizer(weights, spec) if isinstance(spec, Sgd) else AdamOptimizer(weights, spec)
