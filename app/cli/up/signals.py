"""Signals as something to wait for, instead of handlers that interrupt anything anywhere.

Python's C-level handler writes each signal's number into a pipe, and waiting is a `select` on that pipe. The shorter
way, `signal.sigtimedwait`, was tried: a process that was stopped (Ctrl-Z) for longer than its time-out gets a signal's
record from uninitialised memory (seen in CPython 3.11.7), which here meant a stop that nobody had asked for.
"""

import os
import select
import signal
from types import FrameType, TracebackType
from typing import Any, Final, Self

_STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PIECE: Final = 4096


class Signals:
    """While it is entered, takes the signals that ask for a stop, and SIGCHLD; main thread only."""

    def __init__(self) -> None:
        # `nohup` ignores SIGHUP, and that must stay so.
        self._stops = {s for s in _STOPS if s != signal.SIGHUP or signal.getsignal(s) != signal.SIG_IGN}
        self._before: dict[signal.Signals, Any] = {}
        self._wakeup_before = -1
        self._read, self._write = -1, -1
        self.stops_asked = 0

    def __enter__(self) -> Self:
        self._read, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        # A full pipe loses nothing: whoever waits is awake already.
        self._wakeup_before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        # The kernel resets handlers at an exec, so no child inherits any of this.
        self._before = {number: signal.signal(number, _nothing) for number in (*self._stops, signal.SIGCHLD)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._read)
        os.close(self._write)

    def wait(self, timeout_s: float) -> None:
        """Return when a child ended, a stop was asked for, or the time is over."""
        if select.select([self._read], [], [], max(timeout_s, 0.0))[0]:
            self.stops_asked += sum(number in self._stops for number in os.read(self._read, _PIECE))


def _nothing(_number: int, _frame: FrameType | None) -> None:
    """The pipe has the news."""
