"""The hash dropout of `workers.backends.hashing` in torch.

torch has no shifts for unsigned 32-bit numbers, so the words are signed here: they wrap alike, a right shift needs the
copies of the sign bit masked away, and an unsigned comparison becomes a signed one after flipping the top bit.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from app.spec.layers import DropoutLayer
from workers.backends.hashing import MULTIPLIERS, SHIFTS, WORD, places, threshold

_TOP: Final = -(1 << 31)


def signed(word: int) -> int:
    """Return the signed 32-bit number with the same bits."""
    return word - WORD if word >= WORD // 2 else word


def keep(place: Tensor, key: int, rate: float) -> Tensor:
    """Return the mask of `hashing.kept`, from signed words."""
    mixed = place ^ key
    for shift, multiplier in zip(SHIFTS, MULTIPLIERS, strict=False):
        high = (mixed >> shift).bitwise_and_((1 << 32 - shift) - 1)
        mixed = mixed.bitwise_xor_(high).mul_(signed(multiplier))
    return mixed.bitwise_xor_(_TOP) < threshold(rate) - WORD // 2


class Dropout:
    """The dropout layers of a model; the hashed places of the largest batch of the widest one stay on the device."""

    def __init__(self, layers: Sequence[tuple[DropoutLayer, int]], rows: int, device: torch.device) -> None:
        self._layers = [(layer.rate, width) for layer, width in layers]
        widest = max((width for _, width in layers), default=0)
        self._places = torch.from_numpy(places(rows, widest).ravel().view(np.int32)).to(device)

    def apply(self, x: Tensor, layer: int, key: int, first: int = 0) -> Tensor:
        """Drop values of the rows from `first` on of a batch; `key` is the signed key of this layer and step."""
        rate, width = self._layers[layer]
        place = self._places[first * width : (first + len(x)) * width].view(x.shape)
        return x * keep(place, key, rate).to(x.dtype).mul_(1.0 / (1.0 - rate))
