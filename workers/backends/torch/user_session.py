"""A model of the user's own code on one torch device: their module and its random numbers, everything else ours.

Generators are seeded anew for every step, from the job's seed, the step and the rank: so a training that goes on from a
checkpoint draws what it would have drawn, with no state of any generator in the checkpoint. A module's own batch norm
knows the rows of its device alone; floating-point buffers are averaged over the devices after each step, so that every
device answers alike.
"""

import math
from collections.abc import Mapping
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.backends.base import Program, SessionState, Steps
from workers.backends.hashing import step_keys
from workers.backends.initial import WeightFacts, Weights
from workers.backends.torch.group import Alone, Group, share
from workers.backends.torch.losses import LOSSES, sums_of
from workers.backends.torch.session import copied, fill, to_numpy
from workers.backends.torch.updates import Updates
from workers.backends.torch.user_model import TorchUserModel, seed_all
from workers.data.arrays import Arrays
from workers.data.metrics import Sums
from workers.data.split import PartName
from workers.user_model.errors import UserCodeFailed
from workers.user_model.module import UserModule

_LEAST: Final = 2
"""Rows that a rank of several computes at least: its share of a last, small batch may be less, and batch norm fails
for one row. Those that are added are copies, and count in no sum."""


class UserTorchSession:
    """See `workers.backends.base.Session`. With a group of several ranks each of them makes the same calls."""

    def __init__(
        self,
        program: Program,
        module: UserModule,
        parts: Mapping[PartName, Arrays],
        device: torch.device,
        group: Group | None = None,
    ) -> None:
        dtype = torch.float64 if program.dtype == "float64" else torch.float32
        self._program = program
        self._device = device
        self._group: Group = group or Alone()
        if device.type == "cuda":
            torch.backends.cudnn.deterministic = True  # resumed to the bit, as far as the user's own kernels allow
        self._model = TorchUserModel(module, device, dtype, program.precision)
        self._parts = {
            name: (torch.from_numpy(part.x).to(device, dtype), torch.from_numpy(part.y).to(device))
            for name, part in parts.items()
        }
        trained = self._model.trained
        kernels = [name for name, value in trained.items() if value.dim() > 1]
        self._updates = Updates(program, trained, kernels, self._group, device)
        self._loss = LOSSES[program.loss]
        given = program.class_weights
        self._class_weights = None if given is None else torch.tensor(given, dtype=dtype, device=device)

    def run(self, steps: Steps, sums: Sums) -> Sums:
        count, place = steps.rows.shape[1], 2 * self._group.rank
        rows = torch.from_numpy(steps.rows).to(self._device)
        words = step_keys(self._program.seed, place + 2, steps.first, len(steps))[:, place:].tolist()
        mine = share(count, self._group.rank, self._group.world)
        seen = [
            self._step(batch, mine, rate, (high << 32) + low, steps.first + number + 1)
            for number, (batch, rate, (high, low)) in enumerate(zip(rows, steps.rates.tolist(), words, strict=True))
        ]
        total = to_numpy(self._group.in_order(torch.stack(seen)))
        if self._updates.stuck():
            return np.full_like(sums, math.nan)
        return np.asarray(np.cumsum(np.vstack([sums, total]), axis=0)[-1])

    @torch.enable_grad()  # the user's code may have turned it off for the whole process
    def _step(self, batch: Tensor, mine: slice, rate: float, seed: int, step: int) -> Tensor:
        """Make one step on this rank's rows of a batch, and return their sums."""
        seed_all(seed, self._device)
        undo = self._updates.undo(self._model.state.values())
        index, own = self._rows(batch, mine)
        x, y = (values.index_select(0, index) for values in self._parts["train"])
        logits = self._model.forward(x, train=True)[:own]
        if not logits.requires_grad:
            raise UserCodeFailed("The model's logits depend on none of its trained weights: there is nothing to learn.")
        y = y[:own]
        loss = self._loss(logits, y, self._class_weights)
        self._updates.move(loss / len(batch), rate, step, undo)
        self._share_buffers()
        return sums_of(loss.detach(), logits.detach(), y)

    def _rows(self, batch: Tensor, mine: slice) -> tuple[Tensor, int]:
        """Return the rows to compute, and how many of them, from the first on, are this rank's own."""
        index = batch[mine]
        own = len(index)
        if self._group.world > 1 and own < _LEAST:
            index = torch.cat([index, (index if own else batch)[:1].expand(_LEAST - own)])
        return index, own

    @torch.no_grad()
    def _share_buffers(self) -> None:
        if self._group.world == 1:
            return
        buffers = [buffer for buffer in self._model.native.buffers() if buffer.is_floating_point()]
        if buffers:
            for buffer, total in zip(buffers, self._group.sums(buffers), strict=True):
                buffer.copy_(total / self._group.world)

    def outputs(self, part: PartName, start: int, stop: int) -> NDArray[np.floating]:
        seed_all(self._program.seed, self._device)
        x = self._parts[part][0][start:stop].clone()  # the user's code may change it in place
        if not len(x):
            return np.zeros((0, self._model.units), self._program.dtype)
        return to_numpy(self._model.forward(x, train=False))

    def facts(self) -> dict[str, WeightFacts]:
        return self._model.facts()

    def weights(self) -> Weights:
        return self._model.weights()

    def state(self) -> SessionState:
        return {name: copied(value) for name, value in self._updates.slots().items()}

    @torch.no_grad()
    def restore(self, weights: Weights, state: SessionState | None) -> None:
        self._model.load(weights)
        if state is not None:
            fill(self._updates.slots(), state)

    def close(self) -> None:
        """Nothing to give back: the device's memory goes with the process."""
