"""What the conformance suite runs over: torch, TensorFlow and a backend in NumPy; and its words for steps and bits."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.workers.backends import fake
from tests.workers.backends.sessions import ROWS
from workers.backends.base import Backend, Steps, load_backend

Create = Callable[[], Backend]
Named = Mapping[str, NDArray[Any]]

MAKERS: dict[str, Create] = {
    "torch": lambda: load_backend("torch"),
    "tensorflow": lambda: load_backend("tensorflow"),
    "numpy": fake.create,
}


def steps(count: int, first: int = 0, batch: int = 16) -> Steps:
    rows = np.random.default_rng(first).integers(0, ROWS, (count, batch))
    return Steps(rows=rows, rates=np.full(count, 0.01), first=first)


def same(first: Named, second: Named) -> bool:
    """Whether two sets of arrays are equal bit by bit."""
    return first.keys() == second.keys() and all(
        value.shape == second[name].shape and value.tobytes() == second[name].tobytes() for name, value in first.items()
    )
