"""Looks after the checkpoint folder from a thread of its own: neither output nor a stop waits for a large file."""

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Final

from workers.scripts.checkpoints import CheckpointFolder, Made
from workers.scripts.metrics import Standing

LOOK_S: Final = 0.5
_LEAST_S: Final = 0.1
_SHARE_OF_TIME: Final = 0.1
"""Looking and packing take at most this share of the time: a folder of many files is looked at less often."""
_DISTANCE_S: Final = 1.0
_GROWTH: Final = 0.01
_LONGEST_S: Final = 30.0
"""Checkpoints keep a distance that grows to this; a script that saves every second would fill the journal."""


class Keeper:
    """`begin` before the script starts, `start` after it, `finish` when it has ended; `hand_over` must not block.

    `hand_over`, and the folder's own `say`, are called from its thread.
    """

    def __init__(
        self, folder: CheckpointFolder, standing: Callable[[], Standing], hand_over: Callable[[Made], None]
    ) -> None:
        self._folder = folder
        self._standing = standing
        self._hand_over = hand_over
        self._began_s = self._last_s = time.monotonic()
        self._wake = threading.Event()
        self._ended = threading.Event()
        self._announced: SimpleQueue[tuple[str, Standing]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Take note of what is in the folder already."""
        self._folder.begin(self._standing())

    def start(self) -> None:
        """Start the thread; where there can be no more threads, checkpoints are made at the end alone."""
        thread = threading.Thread(target=self._run, name="checkpoints", daemon=True)
        try:
            thread.start()
        except RuntimeError:
            return
        self._thread = thread

    def announce(self, entry: str) -> None:
        """The script says that an entry of its folder is complete."""
        self._announced.put((entry, self._standing()))
        self._wake.set()

    def finish(self, *, everything: bool | None) -> Made | None:
        """Stop looking, and make the last checkpoint, which is not handed over but answered.

        `everything`: not only what is known to be complete; None: make none.
        """
        ended_s = time.monotonic()
        self._ended.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
        if everything is None:
            return None
        self._take_announced()
        return self._folder.look(ended_s, self._standing(), all_of_them=everything, last=True)

    @property
    def has_made(self) -> bool:
        """Whether this attempt has a checkpoint of its own."""
        return self._folder.has_made

    @property
    def step(self) -> int:
        """That of the newest checkpoint; 0 when there is none."""
        return self._folder.step

    def _run(self) -> None:
        pause_s = LOOK_S
        while not self._ended.is_set():
            self._ended.wait(_LEAST_S)
            self._wake.wait(pause_s)
            self._wake.clear()
            if self._ended.is_set():
                return
            began_s = time.monotonic()
            self._take_announced()
            if made := self._folder.look(began_s, self._standing(), only_look=not self._is_due(began_s)):
                self._last_s = began_s
                self._hand_over(made)
            pause_s = max(LOOK_S, (time.monotonic() - began_s) / _SHARE_OF_TIME)

    def _take_announced(self) -> None:
        while not self._announced.empty():
            self._folder.announce(*self._announced.get())

    def _is_due(self, now_s: float) -> bool:
        distance_s = min(_DISTANCE_S + (now_s - self._began_s) * _GROWTH, _LONGEST_S)
        return now_s - self._last_s >= distance_s
