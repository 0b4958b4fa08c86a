"""The optimizers, as torch defines them, on lists of tensors.

Not `torch.optim`: the constructor of any optimizer there imports the compiler (`torch._dynamo`, some 700 modules),
which takes longer than a small job. These call the kernels that `torch.optim` calls, and tests hold them to it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import torch
from torch import Tensor

from app.spec.training import Adagrad, Adam, AdamW, RmsProp, Sgd
from workers.backends.torch import kernels

Slots = dict[str, list[Tensor]]


class Optimizer(Protocol):
    """Moves weights along gradients, in place. `slots`: what it remembers of each weight, by name."""

    slots: Slots

    def update(self, gradients: Sequence[Tensor], rate: float, step: int) -> None:
        """Make update number `step`, counted from 1, at this learning rate; gradients are left as they are."""
        ...

    def overflowed(self) -> bool:
        """Whether what is remembered of the gradients is not finite; waits for the device."""
        ...


class SgdOptimizer:
    """`v = momentum v + g`, `w -= rate v`; Nesterov: `w -= rate (g + momentum v)`. The rate is outside of v."""

    def __init__(self, weights: Sequence[Tensor], spec: Sgd) -> None:
        self._weights = list(weights)
        self._spec = spec
        self.slots: Slots = {"velocity": _zeros(weights)} if spec.momentum else {}

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor], rate: float, step: int) -> None:  # noqa: ARG002 - the protocol
        moves = list(gradients)
        if self.slots:
            velocities = self.slots["velocity"]
            kernels.mul_(velocities, self._spec.momentum)
            kernels.add_(velocities, moves)
            if self._spec.nesterov:
                moves = list(kernels.add(moves, velocities, alpha=self._spec.momentum))
            else:
                moves = velocities
        kernels.add_(self._weights, moves, alpha=-rate)

    def overflowed(self) -> bool:
        return False  # such a velocity makes the weights, and so the loss, as large


class _Part:
    """The weights that have one decay, and what is remembered of them; `places`: where they stand among all."""

    def __init__(self, decay: float, places: list[int], weights: Sequence[Tensor], slots: Slots) -> None:
        self.decay = decay
        self.places = places
        self.weights, self.means, self.squares = (
            [every[place] for place in places] for every in (weights, slots["mean"], slots["square"])
        )


class AdamOptimizer:
    """`w -= rate m' / (sqrt(v') + epsilon)`, one fused kernel for all tensors (that of `Adam(fused=True)`).

    `decays`: the weight decay of each weight, decoupled: `w -= rate decay w` comes first (`AdamW(fused=True)`).
    """

    def __init__(self, weights: Sequence[Tensor], spec: Adam | AdamW, decays: Sequence[float]) -> None:
        self._spec = spec
        self._step = torch.zeros((), dtype=torch.float32, device=weights[0].device)
        self.slots: Slots = {"mean": _zeros(weights), "square": _zeros(weights)}
        self._parts = [
            _Part(decay, [place for place, found in enumerate(decays) if found == decay], weights, self.slots)
            for decay in sorted(set(decays))
        ]

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor], rate: float, step: int) -> None:
        self._step.fill_(step)
        for part in self._parts:
            kernels.fused_adamw_(
                part.weights,
                [gradients[place] for place in part.places],
                part.means,
                part.squares,
                [],
                [self._step] * len(part.places),
                lr=rate,
                beta1=self._spec.beta_1,
                beta2=self._spec.beta_2,
                weight_decay=part.decay,
                eps=self._spec.epsilon,
                amsgrad=False,
                maximize=False,
            )

    def overflowed(self) -> bool:
        return _any_infinite(self.slots["square"])


class RmsPropOptimizer:
    """`s = rho s + (1 - rho) g²`, `b = momentum b + g / (sqrt(s) + epsilon)`, `w -= rate b`."""

    def __init__(self, weights: Sequence[Tensor], spec: RmsProp) -> None:
        self._weights = list(weights)
        self._spec = spec
        self.slots: Slots = {"square": _zeros(weights)}
        if spec.momentum:
            self.slots["velocity"] = _zeros(weights)

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor], rate: float, step: int) -> None:  # noqa: ARG002 - the protocol
        squares, moves = self.slots["square"], list(gradients)
        kernels.mul_(squares, self._spec.rho)
        kernels.addcmul_(squares, moves, moves, 1.0 - self._spec.rho)
        roots = kernels.sqrt(squares)
        kernels.add_(roots, self._spec.epsilon)
        if not self._spec.momentum:
            kernels.addcdiv_(self._weights, moves, roots, -rate)
            return
        velocities = self.slots["velocity"]
        kernels.mul_(velocities, self._spec.momentum)
        kernels.addcdiv_(velocities, moves, roots)
        kernels.add_(self._weights, velocities, alpha=-rate)

    def overflowed(self) -> bool:
        return _any_infinite(self.slots["square"])


class AdagradOptimizer:
    """`s += g²`, `w -= rate g / (sqrt(s) + epsilon)`."""

    def __init__(self, weights: Sequence[Tensor], spec: Adagrad) -> None:
        self._weights = list(weights)
        self._spec = spec
        self.slots: Slots = {"sum": [torch.full_like(weight, spec.initial_accumulator) for weight in _free(weights)]}

    @torch.no_grad()
    def update(self, gradients: Sequence[Tensor], rate: float, step: int) -> None:  # noqa: ARG002 - the protocol
        sums, moves = self.slots["sum"], list(gradients)
        kernels.addcmul_(sums, moves, moves, 1.0)
        roots = kernels.sqrt(sums)
        kernels.add_(roots, self._spec.epsilon)
        kernels.addcdiv_(self._weights, moves, roots, -rate)

    def overflowed(self) -> bool:
        return _any_infinite(self.slots["sum"])


_KINDS: Final[Mapping[type, Callable[[Sequence[Tensor], Any], Optimizer]]] = {
    Sgd: SgdOptimizer,
    RmsProp: RmsPropOptimizer,
    Adagrad: AdagradOptimizer,
}


def optimizer_for(
    spec: Sgd | Adam | AdamW | RmsProp | Adagrad, weights: Sequence[Tensor], decays: Sequence[float] | None = None
) -> Optimizer:
    """Make the optimizer of these weights; `decays` is the decoupled weight decay of each, which AdamW alone knows."""
    if isinstance(spec, AdamW):
        return AdamOptimizer(weights, spec, decays or [0.0] * len(weights))
    if isinstance(spec, Adam):
        return AdamOptimizer(weights, spec, [0.0] * len(weights))
    return _KINDS[type(spec)](weights, spec)


def _free(weights: Sequence[Tensor]) -> list[Tensor]:
    return [weight.detach() for weight in weights]


def _zeros(weights: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(weight) for weight in _free(weights)]


def _any_infinite(tensors: Sequence[Tensor]) -> bool:
    return not all(bool(tensor.isfinite().all()) for tensor in tensors)
