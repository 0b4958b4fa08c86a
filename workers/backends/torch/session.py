"""A model, its optimizer and its data in torch: many steps in a row, none of which waits for the device."""

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.backends.base import Program, Steps
from workers.backends.hashing import dropouts, step_keys
from workers.backends.initial import Weights
from workers.backends.torch.dropout import Dropout
from workers.backends.torch.layers import forward
from workers.backends.torch.losses import LOSSES, sums_of
from workers.backends.torch.optimizers import optimizer_for
from workers.data.arrays import Arrays
from workers.data.metrics import Sums
from workers.data.split import PartName


class TorchSession:
    """See `workers.backends.base.Session`."""

    def __init__(
        self, program: Program, weights: Weights, parts: Mapping[PartName, Arrays], device: torch.device
    ) -> None:
        dtype = torch.float64 if program.dtype == "float64" else torch.float32
        self._program = program
        self._device = device
        self._parts = {
            name: (torch.from_numpy(part.x).to(device, dtype), torch.from_numpy(part.y).to(device))
            for name, part in parts.items()
        }
        self._weights = {
            name: torch.from_numpy(value).to(device, dtype, copy=True).requires_grad_()
            for name, value in weights.items()
        }
        self._trained = list(self._weights.values())
        self._kernels = [value for name, value in self._weights.items() if name.endswith(".kernel")]
        self._loss = LOSSES[program.loss]
        self._optimizer = optimizer_for(program.optimizer, self._trained)
        self._layers = dropouts(program.layers, parts["train"].x.shape[1])
        self._dropout = Dropout(self._layers, program.batch_size, device)

    def run(self, steps: Steps, sums: Sums) -> Sums:
        total = torch.from_numpy(sums).to(self._device, copy=True)
        rows = torch.from_numpy(steps.rows).to(self._device)
        keys = step_keys(self._program.seed, len(self._layers), steps.first, len(steps)).view(np.int32).tolist()
        for index, rate, key, step in zip(rows, steps.rates.tolist(), keys, range(len(steps)), strict=True):
            total += self._step(index, rate, key, steps.first + step + 1)
        if self._optimizer.overflowed():
            # A gradient whose square is infinite: Adam divides by it from now on, and the model would stand still for
            # ever with a finite loss. TensorFlow's kernel says NaN by itself.
            total.fill_(math.nan)
        return _numpy(total)

    def _step(self, index: Tensor, rate: float, keys: Sequence[int], step: int) -> Tensor:
        x, y = (values.index_select(0, index) for values in self._parts["train"])
        logits = forward(self._program.layers, self._weights, x, self._drop(keys))
        loss = self._loss(logits, y)
        gradients = torch.autograd.grad(loss / len(index) + self._penalty(), self._trained)
        self._optimizer.update(gradients, rate, step)
        return sums_of(loss.detach(), logits.detach(), y)

    def _drop(self, keys: Sequence[int]) -> Callable[[Tensor, int], Tensor]:
        return lambda x, layer: self._dropout.apply(x, layer, keys[layer])

    def _penalty(self) -> Tensor | float:
        penalty: Tensor | float = 0.0
        if self._program.l1:
            penalty = penalty + self._program.l1 * sum(kernel.abs().sum() for kernel in self._kernels)
        if self._program.l2:
            penalty = penalty + self._program.l2 * sum(kernel.square().sum() for kernel in self._kernels)
        return penalty

    @torch.no_grad()
    def evaluate(self, part: PartName, start: int, stop: int, sums: Sums) -> Sums:
        x, y = (values[start:stop] for values in self._parts[part])
        logits = forward(self._program.layers, self._weights, x)
        return sums + _numpy(sums_of(self._loss(logits, y), logits, y))

    def weights(self) -> Weights:
        return {name: value.detach().cpu().numpy().copy() for name, value in self._weights.items()}


def _numpy(sums: Tensor) -> Sums:
    """Copy sums to the host; on a CUDA device this waits for all that was asked of it."""
    values: NDArray[np.float64] = sums.cpu().numpy()
    return values
