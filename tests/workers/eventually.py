"""Wait for something to become true, with a deadline; never for a time to pass."""

import time
from collections.abc import Callable

LIMIT_S = 20.0


def eventually(holds: Callable[[], bool], what: str = "the condition") -> None:
    give_up = time.monotonic() + LIMIT_S
    while not holds():
        assert time.monotonic() < give_up, f"{what} did not come true"
        time.sleep(0.005)
