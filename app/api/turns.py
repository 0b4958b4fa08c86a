"""Who may read a data root now: few at once, so that a mount that does not answer holds up nobody else.

A thread that waits for such a mount cannot be ended. So each root has threads of its own, and who finds them all taken
is sent away after a while.
"""

import math
from collections.abc import Callable
from typing import Final, TypeVar

from anyio import CapacityLimiter, fail_after
from anyio.to_thread import run_sync

from app.tables.in_place import RootUnavailable

T = TypeVar("T")

_AT_ONCE: Final = 2
_PATIENCE_S: Final = 30.0


class Turns:
    """`patience_s`: how long to wait for a turn; a file that is checked may take longer, a look at one does not."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        self._patience_s = patience_s
        self._limiters: dict[tuple[str, str], CapacityLimiter] = {}
        self._threads = CapacityLimiter(math.inf)  # as many as have a turn

    async def run(self, kind: tuple[str, str], uri: str, work: Callable[[], T]) -> T:
        """Do the work in a thread, when it is this request's turn; each kind, a root and a purpose, has its own turns.

        Raises:
            RootUnavailable: nobody before it came to an end.
        """
        limiter = self._limiters.setdefault(kind, CapacityLimiter(_AT_ONCE))
        turn = object()
        try:
            with fail_after(self._patience_s):
                await limiter.acquire_on_behalf_of(turn)
        except TimeoutError:
            raise RootUnavailable(uri, "others are reading there, and it does not answer them") from None
        try:
            return await run_sync(work, limiter=self._threads)
        finally:
            limiter.release_on_behalf_of(turn)
