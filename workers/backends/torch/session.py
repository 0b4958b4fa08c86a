"""A model, its optimizer and its data on one torch device: many steps in a row, none of which waits for the device."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from workers.backends.base import Program, SessionState, Steps
from workers.backends.hashing import dropouts, step_keys
from workers.backends.initial import WeightFacts, Weights, weight_facts
from workers.backends.torch.dropout import Dropout
from workers.backends.torch.group import Alone, Group, share
from workers.backends.torch.layers import forward
from workers.backends.torch.losses import LOSSES, sums_of
from workers.backends.torch.normalisation import BatchStatistics
from workers.backends.torch.passes import Drop
from workers.backends.torch.precision import HALVES
from workers.backends.torch.updates import Updates
from workers.data.arrays import Arrays
from workers.data.metrics import Sums
from workers.data.split import PartName


class TorchSession:
    """See `workers.backends.base.Session`. With a group of several ranks each of them makes the same calls."""

    def __init__(
        self,
        program: Program,
        weights: Weights,
        parts: Mapping[PartName, Arrays],
        device: torch.device,
        group: Group | None = None,
    ) -> None:
        dtype = torch.float64 if program.dtype == "float64" else torch.float32
        self._program = program
        self._device = device
        self._group: Group = group or Alone()
        self._parts = {
            name: (torch.from_numpy(part.x).to(device, dtype), torch.from_numpy(part.y).to(device))
            for name, part in parts.items()
        }
        facts = weight_facts(program.layers, program.input_shape)
        self._weights = {
            name: torch.tensor(value, dtype=dtype, device=device, requires_grad=facts[name].trained)
            for name, value in weights.items()
        }
        self._facts = facts
        trained = {name: self._weights[name] for name, fact in facts.items() if fact.trained}
        kernels = [name for name in trained if name.endswith("kernel")]
        self._updates = Updates(program, trained, kernels, self._group, device)
        self._loss = LOSSES[program.loss]
        given = program.class_weights
        self._class_weights = None if given is None else torch.tensor(given, dtype=dtype, device=device)
        self._layers = dropouts(program.layers, program.input_shape)
        self._dropout = Dropout(self._layers, program.batch_size, device)
        self._product = HALVES.get(program.precision)

    def run(self, steps: Steps, sums: Sums) -> Sums:
        count = steps.rows.shape[1]
        mine = share(count, self._group.rank, self._group.world)
        rows = torch.from_numpy(steps.rows).to(self._device)[:, mine]
        keys = step_keys(self._program.seed, len(self._layers), steps.first, len(steps)).view(np.int32).tolist()
        seen = [
            self._step(index, count, mine.start, rate, key, steps.first + place + 1)
            for place, (index, rate, key) in enumerate(zip(rows, steps.rates.tolist(), keys, strict=True))
        ]
        total = to_numpy(self._group.in_order(torch.stack(seen)))
        if self._updates.stuck():
            # A gradient whose square is infinite: Adam divides by it from now on, and the model would stand still for
            # ever with a finite loss. TensorFlow's kernel says NaN by itself.
            return np.full_like(sums, math.nan)
        # One row after the other, wherever a chunk begins.
        return np.asarray(np.cumsum(np.vstack([sums, total]), axis=0)[-1])

    def _step(self, index: Tensor, rows: int, first: int, rate: float, keys: Sequence[int], step: int) -> Tensor:
        """Make one step on this rank's rows of a batch of `rows`, and return their sums."""
        undo = self._updates.undo(self._weights.values())
        x, y = (values.index_select(0, index) for values in self._parts["train"])
        logits = forward(
            self._program.layers,
            self._weights,
            x,
            self._drop(keys, first),
            statistics=BatchStatistics(self._group, rows),
            product=self._product,
        )
        loss = self._loss(logits, y, self._class_weights)
        self._updates.move(loss / rows, rate, step, undo)
        return sums_of(loss.detach(), logits.detach(), y)

    def _drop(self, keys: Sequence[int], first: int) -> Drop:
        return lambda x, layer: self._dropout.apply(x, layer, keys[layer], first)

    @torch.no_grad()
    def outputs(self, part: PartName, start: int, stop: int) -> NDArray[np.floating]:
        x = self._parts[part][0][start:stop]
        logits = forward(self._program.layers, self._weights, x, product=self._product)
        return to_numpy(logits)

    def facts(self) -> dict[str, WeightFacts]:
        return self._facts

    def weights(self) -> Weights:
        return {name: copied(value) for name, value in self._weights.items()}

    def state(self) -> SessionState:
        return {name: copied(value) for name, value in self._updates.slots().items()}

    @torch.no_grad()
    def restore(self, weights: Weights, state: SessionState | None) -> None:
        fill(self._weights, weights)
        if state is not None:
            fill(self._updates.slots(), state)

    def close(self) -> None:
        """Nothing to give back: the device's memory goes with the process."""


def to_numpy(tensor: Tensor) -> NDArray[np.floating]:
    """Bring a tensor to the host; on a CUDA device this waits for all that was asked of it."""
    values: NDArray[np.floating] = tensor.cpu().numpy()
    return values


def copied(tensor: Tensor) -> NDArray[np.floating]:
    return to_numpy(tensor.detach()).copy()


def fill(tensors: Mapping[str, Tensor], values: Mapping[str, NDArray[np.generic]]) -> None:
    """Copy values into tensors of the same names and shapes.

    Raises:
        ValueError: when a name or a shape is another.
    """
    strange = sorted(tensors.keys() ^ values.keys())
    if strange:
        raise ValueError(f"What is restored differs from the model in: {', '.join(strange)}.")
    for name, tensor in tensors.items():
        if tuple(tensor.shape) != values[name].shape:
            raise ValueError(f"'{name}' has shape {values[name].shape}, where the model has {tuple(tensor.shape)}.")
        tensor.copy_(torch.from_numpy(np.array(values[name])))
