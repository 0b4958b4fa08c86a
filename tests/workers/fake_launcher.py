"""A launcher whose trainer is the test: it says what a trainer would say, and sees what a trainer would be told.

It takes the real kernel locks and passes the same conformance suite as the real launcher (supervisor/test_port.py).
"""

import os
import queue
import signal
import socket
import threading
from collections import deque
from pathlib import Path

from app.clock import Clock
from workers.launch_port import Busy, Ended, Event, LauncherGone, LaunchFailed, LaunchRequest, Running, StartedEvent
from workers.locks import close_all, lock_names, take_all
from workers.protocol import Assignment, Message, ScriptAssignment, Stop, encode

LIMIT_S = 20.0
PID = 4242


class FakeRun:
    """The worker's side is `Running`; the rest is the trainer's, for the test to play."""

    def __init__(self, request: LaunchRequest, locks: list[int], *, ignores: frozenset[int]) -> None:
        self.request = request
        self.signals: list[int] = []
        self.until: list[int] = []
        self.heard: list[Stop] = []
        self.closed = threading.Event()
        self.messages, self._trainer = socket.socketpair()
        self.messages.settimeout(0)
        self.output, self._stdout = os.pipe()
        self.control, self._launcher = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.settimeout(0)
        self._events: deque[Event] = deque()
        self._ignores = ignores
        self._locks = locks
        self._ended = False
        self._output_open = True
        self._turn = threading.RLock()

    @property
    def assignment(self) -> Assignment:
        """What the trainer of a model job is told."""
        assert isinstance(self.request.assignment, Assignment)
        return self.request.assignment

    @property
    def script(self) -> ScriptAssignment:
        """What the host of a script is told."""
        assert isinstance(self.request.assignment, ScriptAssignment)
        return self.request.assignment

    def events(self) -> list[Event]:
        found: list[Event] = []
        while True:
            try:
                packet = self.control.recv(16)
            except BlockingIOError:
                return found
            if not packet:
                return [*found, LauncherGone()]
            found.append(self._events.popleft())

    def stop(self, signum: int) -> None:
        self.signals.append(signum)
        if signum not in self._ignores:
            self.end(signal=signum)

    def extend(self, until_boot_ns: int) -> None:
        self.until.append(until_boot_ns)

    def send(self, message: Stop) -> None:
        self.heard.append(message)

    def close(self) -> None:
        with self._turn:
            if self.closed.is_set():
                return
            self._finish()
            for end in (self.control, self._launcher, self.messages):
                end.close()
            os.close(self.output)
            self.closed.set()

    def says(self, *messages: Message) -> None:
        for message in messages:
            self._trainer.sendall(encode(message))

    def sends_raw(self, data: bytes) -> None:
        self._trainer.sendall(data)

    def prints(self, data: bytes) -> None:
        """Write all of it; blocks, as a trainer does, when the worker does not drain."""
        while data:
            data = data[os.write(self._stdout, data) :]

    def closes_output(self) -> None:
        if self._output_open:
            self._output_open = False
            os.close(self._stdout)

    def end(
        self, *, code: int | None = None, signal: int | None = None, survivors: bool = False, deadline: bool = False
    ) -> None:
        with self._turn:
            if not self._ended:
                self._finish(survivors=survivors)
                self.happens(Ended(code if signal is None else None, signal, 1 << 20, survivors, deadline))

    def vanish(self) -> None:
        """The launcher is killed, and the trainer with it."""
        with self._turn:
            self._finish()
            self._launcher.close()

    def happens(self, event: Event) -> None:
        self._events.append(event)
        self._launcher.send(b"e")

    def survivors_end(self) -> None:
        """What `end(survivors=True)` left behind, with its locks, is gone now."""
        close_all(self._locks)
        self._locks = []

    def _finish(self, *, survivors: bool = False) -> None:
        if not self._ended:
            self._ended = True
            if not survivors:
                self.survivors_end()
            self.closes_output()
            self._trainer.close()


class FakeLauncher:
    """Starts runs that the test plays; `next_run` gives them in their order."""

    def __init__(self, clock: Clock, *, ignores: frozenset[int] = frozenset()) -> None:
        self.refuses: Path | None = None
        self.starts = True
        self._clock = clock
        self._ignores = ignores
        self._runs: queue.Queue[FakeRun] = queue.Queue()

    def start(self, request: LaunchRequest) -> Running:
        if self.refuses is not None:
            raise LaunchFailed(self.refuses, "No such file or directory")
        request.lock_dir.mkdir(parents=True, exist_ok=True)
        names = lock_names(request.assignment.job_id, [device.id for device in request.assignment.devices])
        locks, held = take_all([str(request.lock_dir / name) for name in names])
        run = FakeRun(request, locks, ignores=self._ignores)
        if held is not None:
            run.happens(Busy(held))
        elif self._clock.boot_ns() >= request.until_boot_ns:
            run.end(signal=signal.SIGKILL, deadline=True)
        elif self.starts:
            run.happens(StartedEvent(PID, PID, 17))
        self._runs.put(run)
        return run

    def next_run(self) -> FakeRun:
        return self._runs.get(timeout=LIMIT_S)

    @property
    def idle(self) -> bool:
        """Whether every run was handed to the test already."""
        return self._runs.empty()
