"""Dropout masks from an integer hash: no generator, no state, the same bits in every framework and on every device.

A value is kept when `scramble(place ^ key)` is under a threshold, where `place` is the hash of `row * width + column`
and `key` that of (seed, layer, step). `row` is the row's place in the whole batch, so that a batch cut over several
devices draws the masks of one device; `column` the place in the flattened rest of the shape, `width` their number. The
place is hashed before the key comes in and again after it: with one round, the masks of different steps would be
shifted copies of each other.

`mix` is a bijection of 32-bit numbers, two multiplications and three xor-shifts ("lowbias32", found by Chris Wellons'
hash prospector, https://nullprogram.com/blog/2018/07/31/); `scramble` is `mix` without its last shift, which leaves the
high bits, those that a comparison looks at, as they are. What depends on neither step nor seed (`places`) is computed
once; what does (`step_keys`) is computed here for a whole chunk of steps, so a backend only scrambles and compares.
"""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.spec.geometry import trace
from app.spec.layers import DropoutLayer, Layer, Shape

MULTIPLIERS: Final = (0x7FEB352D, 0x846CA68B)
SHIFTS: Final = (16, 15, 16)
WORD: Final = 1 << 32

_SALTS: Final = (0x9E3779B9, 0x7F4A7C15)  # the two halves of 2**64 divided by the golden ratio


def scramble(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Hash 32-bit numbers; only the high bits of the result are well mixed. Wraps, as unsigned arithmetic does."""
    mixed = (values ^ (values >> np.uint32(SHIFTS[0]))) * np.uint32(MULTIPLIERS[0])
    return (mixed ^ (mixed >> np.uint32(SHIFTS[1]))) * np.uint32(MULTIPLIERS[1])


def mix(values: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Hash 32-bit numbers; every bit of the result depends on every bit of the number."""
    mixed = scramble(values)
    return mixed ^ (mixed >> np.uint32(SHIFTS[2]))


def places(rows: int, width: int) -> NDArray[np.uint32]:
    """Hash the places of a batch, shape (rows, width).

    The first rows are the same for a batch of any size, and the first `n` of the flattened table the same for any
    shape: one table, as long as the largest layer needs, serves every dropout layer.
    """
    return mix(np.arange(rows * width, dtype=np.uint64).astype(np.uint32)).reshape(rows, width)


def step_keys(seed: int, layers: int, first: int, count: int) -> NDArray[np.uint32]:
    """Return a key for each of `count` steps from `first` on and each dropout layer, shape (count, layers).

    Seed, layer and step are salted before they are hashed: unsalted, layer 1 at step 2 had the key of layer 2 at
    step 1 whenever the seed was 0.
    """
    seed_salt, step_salt = (np.uint32(salt) for salt in _SALTS)
    root = mix(mix(np.array([seed >> 32 & WORD - 1], np.uint32) ^ seed_salt) ^ np.uint32(seed & WORD - 1))
    layer = mix(root ^ np.arange(1, layers + 1, dtype=np.uint32))
    step = mix(np.arange(first, first + count, dtype=np.uint64).astype(np.uint32) ^ step_salt)
    return mix(layer[None, :] ^ step[:, None])


def threshold(rate: float) -> int:
    """Return how many of the 2**32 hashes keep the value; at most 2**32 - 1, so that it fits a word."""
    return min(round((1.0 - rate) * WORD), WORD - 1)


def kept(place: NDArray[np.uint32], key: np.uint32, rate: float) -> NDArray[np.bool_]:
    """Return the mask, in NumPy: what every backend must equal bit by bit."""
    return np.asarray(scramble(place ^ key) < np.uint32(threshold(rate)))


def dropouts(layers: Sequence[Layer], input_shape: Shape) -> list[tuple[DropoutLayer, int]]:
    """Return the dropout layers depth first, each with how many values of a row pass through it: its columns."""
    return [
        (layer, math.prod(shape)) for layer, shape, _ in trace(layers, input_shape) if isinstance(layer, DropoutLayer)
    ]
