"""From what the processes write to the job's log and to metrics, and what is kept to explain an end."""

import contextlib
import fcntl
import os
from collections import deque
from collections.abc import Callable
from typing import Final

from workers.scripts.lines import Lines
from workers.scripts.metrics import Sighting, sight

BLOCK: Final = 256 * 1024
TAIL_BYTES: Final = 64 * 1024
AFTER_END_BYTES: Final = 16 * 1024 * 1024
"""How much is still read once the process has ended: what its pipes hold, not what somebody it left behind writes."""
_PIPE_BYTES: Final = 1024 * 1024

Write = Callable[[bytes], None]
Take = Callable[[Sighting], bool]


class Tail:
    """The last output of one process, for the sentence about its end."""

    def __init__(self) -> None:
        self._blocks: deque[bytes] = deque()
        self._bytes = 0

    def add(self, block: bytes) -> None:
        self._blocks.append(block)
        self._bytes += len(block)
        while self._bytes - len(self._blocks[0]) >= TAIL_BYTES:
            self._bytes -= len(self._blocks.popleft())

    def text(self) -> str:
        """As a terminal would show it: of a line that was overwritten, what was left standing."""
        text = b"".join(self._blocks)[-TAIL_BYTES:].decode("utf-8", "replace")
        shown = (next((part for part in reversed(line.split("\r")) if part), "") for line in text.split("\n"))
        return "\n".join(line for line in shown if line)


class Stream:
    """One pipe of one process. `take` is asked for each metric, and answers False when the line is for the log too."""

    def __init__(self, descriptor: int, tail: Tail, write: Write, prefix: bytes, take: Take | None) -> None:
        self.descriptor = descriptor
        self._tail = tail
        self._write = write
        self._prefix = prefix
        self._take = take
        self._lines = Lines()
        os.set_blocking(descriptor, False)
        _widen(descriptor)

    def read(self) -> int | None:
        """Take in what is there: how many bytes; 0 at the end of the stream, None when there is nothing now."""
        try:
            data = os.read(self.descriptor, BLOCK)
        except BlockingIOError:
            return None
        if data:
            self._hand_on(self._lines.feed(data))
        else:
            self._hand_on(self._lines.finish())
        return len(data)

    def finish(self) -> None:
        """Take in what is left, although somebody may still hold the other end, and close."""
        left = AFTER_END_BYTES
        while left > 0 and (count := self.read()):
            left -= count
        self._hand_on(self._lines.finish())
        os.close(self.descriptor)

    def _hand_on(self, lines: list[tuple[bytes, bool]]) -> None:
        kept = [line for line, whole in lines if not (whole and self._is_metric(line))]
        if not kept:
            return
        text = b"".join(kept)
        self._tail.add(text)
        self._write(b"".join(self._prefix + line for line in kept) if self._prefix else text)

    def _is_metric(self, line: bytes) -> bool:
        """Whether the line says a metric, and need not be in the log."""
        if self._take is None or b"{" not in line:
            return False
        sighting = sight(line)
        return sighting is not None and self._take(sighting)


def _widen(descriptor: int) -> None:
    """Give a pipe room, so that a burst of output does not hold its writer up; not every user may have as much."""
    with contextlib.suppress(OSError):
        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
