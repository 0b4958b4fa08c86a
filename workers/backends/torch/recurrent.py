"""LSTM and GRU by torch's own loops over steps, from weights in the shapes of Keras.

torch keeps kernels transposed, has two biases where the LSTM has one, and orders the gates of a GRU r, z, h.
"""

from typing import Final, cast

import torch
from torch import Tensor

from app.spec.layers import GruLayer, LstmLayer
from workers.backends.torch.passes import Operation, Pass


def _lstm(layer: LstmLayer, x: Tensor, call: Pass) -> Tensor:
    kernel, recurrent, bias = _weights(layer.name, call)
    x = call.factor(x)
    start = x.new_zeros(1, len(x), layer.units)
    weights = [kernel.t(), recurrent.t(), bias, torch.zeros_like(bias)]
    every, last, _ = torch.lstm(x, (start, start), weights, True, 1, 0.0, True, False, True)  # noqa: FBT003 - torch's
    return every if layer.return_sequences else last[0]


def _gru(layer: GruLayer, x: Tensor, call: Pass) -> Tensor:
    kernel, recurrent, bias = (_reset_first(weight) for weight in _weights(layer.name, call))
    x = call.factor(x)
    start = x.new_zeros(1, len(x), layer.units)
    weights = [kernel.t(), recurrent.t(), bias[0], bias[1]]
    every, last = torch.gru(x, start, weights, True, 1, 0.0, True, False, True)  # noqa: FBT003 - torch's
    return every if layer.return_sequences else last[0]


def _weights(name: str, call: Pass) -> tuple[Tensor, Tensor, Tensor]:
    kernel, recurrent, bias = (
        call.factor(call.weights[f"{name}.{weight}"]) for weight in ("kernel", "recurrent_kernel", "bias")
    )
    return kernel, recurrent, bias


def _reset_first(weight: Tensor) -> Tensor:
    """Bring the gates of the last axis from z, r, h to r, z, h."""
    update, reset, candidate = weight.chunk(3, dim=-1)
    return torch.cat([reset, update, candidate], dim=-1)


OPERATIONS: Final = cast("dict[str, Operation]", {"lstm": _lstm, "gru": _gru})
