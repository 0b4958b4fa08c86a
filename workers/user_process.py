"""A process that runs code of a user's outside of any job, and the worker's conversation with it.

It is started as a trainer is: by a launcher, with a user of its own where there are any, in the sandbox of code jobs,
in a work folder of its own; and it ends when this worker does. It is asked with lines and answers with lines; nothing
that it says is believed, or read without a bound.
"""

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Final

from app.errors import TrainshedError
from workers.launch_port import Ended, Event, LauncherGone, Running, StartedEvent
from workers.ownership import remove_tree

_BLOCK: Final = 256 * 1024
_TAIL: Final = 2_000
_END_S: Final = 3.0
"""How long to wait for the word on how a process ended, once it has closed its socket."""
_LONGEST_POLL_MS: Final = 1_000


class UserCodeEnded(TrainshedError):
    """The process ended, took too long, or said too much: the fault of the code that it runs."""

    code: ClassVar[str] = "user_code"


class NotStarted(TrainshedError):
    """The process could not be started or kept: the host's fault. Another one may try."""

    code: ClassVar[str] = "unavailable"


def _nothing() -> None:
    """Nothing was lent."""


class UserProcess:
    """One process. `ask` comes from one thread at a time; `kill` may come from any, and makes it raise.

    `given_back` is called once it has ended, for what was lent to it.
    """

    def __init__(
        self,
        run: Running,
        work_dir: Path,
        given_back: Callable[[], None] = _nothing,
    ) -> None:
        self.work_dir = work_dir
        self._run = run
        self._given_back = given_back
        self._end: Event | None = None
        self._heard = bytearray()
        self._output = bytearray()
        self._output_open = True
        self._closing = threading.Lock()
        self._closed = False

    @property
    def is_over(self) -> bool:
        """Whether it has ended, as far as its launcher has said."""
        self._look()
        return self._end is not None

    def ask(self, line: bytes, within_s: float, most_bytes: int) -> bytes:
        """Send a line and wait for one, which is given without its newline.

        Raises:
            UserCodeEnded: there is no answer, or one of more than `most_bytes`. It must be closed now.
            NotStarted: the same, by no fault of the code.
        """
        rest, until = memoryview(line + b"\n"), time.monotonic() + within_s
        while (left_s := until - time.monotonic()) > 0:
            messages, output, control = self._ready(left_s, sending=bool(rest))
            if output:
                self._read_output()
            if messages & select.POLLOUT:
                rest = rest[self._send(rest) :]
            if messages & ~select.POLLOUT:
                found = self._receive(most_bytes)
                if found is not None:
                    return found
            elif control and self.is_over:
                raise self._ended()
        raise UserCodeEnded(f"It took longer than {within_s:.3g} s." + self._last_words())

    def extend(self, until_boot_ns: int) -> None:
        """Let it live until then."""
        self._run.extend(until_boot_ns)

    def kill(self) -> None:
        """End it now."""
        self._run.stop(signal.SIGKILL)

    def finish(self) -> None:
        """End it, and prove it. What it left in the work folder is this process' own then. Harmless twice."""
        with self._closing:
            if not self._closed:
                self._closed = True
                try:
                    self._run.close()
                finally:
                    self._given_back()

    def close(self) -> None:
        """End it, and remove its work folder. Harmless twice."""
        self.finish()
        remove_tree(self.work_dir)

    def _ready(self, left_s: float, *, sending: bool) -> tuple[int, int, int]:
        """What has happened to the socket of messages, the output and the launcher's socket; waits for something."""
        sources = {self._run.messages.fileno(): select.POLLIN | (select.POLLOUT if sending else 0)}
        if self._output_open:
            sources[self._run.output] = select.POLLIN
        if self._end is None:
            sources[self._run.control.fileno()] = select.POLLIN
        poll = select.poll()
        for source, events in sources.items():
            poll.register(source, events)
        found = dict(poll.poll(min(int(left_s * 1000) + 1, _LONGEST_POLL_MS)))
        places = (self._run.messages.fileno(), self._run.output, self._run.control.fileno())
        messages, output, control = (found.get(place, 0) for place in places)
        return messages, output, control

    def _send(self, rest: memoryview) -> int:
        try:
            return self._run.messages.send(rest[:_BLOCK])
        except BlockingIOError:
            return 0
        except OSError:
            raise self._ended() from None

    def _receive(self, most_bytes: int) -> bytes | None:
        """A whole line, if there is one now."""
        try:
            part = self._run.messages.recv(_BLOCK)
        except BlockingIOError:
            return None
        except OSError:
            part = b""
        if not part:
            raise self._ended()
        self._heard += part
        # A newline can only be in the new part.
        end = self._heard.find(b"\n", len(self._heard) - len(part))
        if len(self._heard) > most_bytes + 1:
            raise UserCodeEnded(f"Its answer has more than {most_bytes} bytes.")
        if end < 0:
            return None
        if end != len(self._heard) - 1:
            raise UserCodeEnded("It said more than it was asked.")
        line = bytes(self._heard[:end])
        self._heard.clear()
        return line

    def _read_output(self) -> None:
        part = os.read(self._run.output, _BLOCK)
        self._output_open = bool(part)
        self._output += part
        del self._output[:-_TAIL]

    def _look(self) -> None:
        if self._end is None:
            self._end = next((event for event in self._run.events() if not isinstance(event, StartedEvent)), None)

    def _ended(self) -> TrainshedError:
        """Why it ended; waits a moment for the launcher to say."""
        until = time.monotonic() + _END_S
        while not self.is_over and (left_s := until - time.monotonic()) > 0:
            select.select([self._run.control], [], [], left_s)
        while self._output_open and select.select([self._run.output], [], [], 0)[0]:
            self._read_output()
        if isinstance(self._end, Ended):
            return UserCodeEnded(_how(self._end) + self._last_words())
        if self._end is None:
            return UserCodeEnded("It closed its socket." + self._last_words())
        why = "its launcher died" if isinstance(self._end, LauncherGone) else "its lock is held by another process"
        return NotStarted(f"The process could not be kept: {why}.{self._last_words()}")

    def _last_words(self) -> str:
        text = self._output.decode(errors="replace").strip().replace("\0", "\ufffd")
        return f" Its last output: {text}" if text else ""


def _how(end: Ended) -> str:
    if end.deadline:
        return "It took longer than it may."
    if end.signal is None:
        return f"It left with exit code {end.code}."
    name = signal.Signals(end.signal).name if end.signal in set(signal.Signals) else str(end.signal)
    return f"It was ended by {name}{'; perhaps its memory was full' if end.signal == signal.SIGKILL else ''}."
