"""Watches one running trainer: drains all that it says, passes orders on, stops it step by step, until its end.

Nothing here waits for the database, so a trainer never blocks on a full pipe, and a deadline or a stop is passed on
whatever else is slow.
"""

import os
import select
import signal
import socket
from collections.abc import Callable
from typing import Final

import structlog

from app.clock import Clock
from workers.launch_port import Busy, Ended, LauncherGone, Running, StartedEvent
from workers.log_lines import LogLines
from workers.memory_events import oom_kills
from workers.orders import Orders
from workers.outcome import Proof, Watched
from workers.protocol import (
    Artifact,
    Checkpoint,
    Decoder,
    Done,
    Failed,
    Message,
    Notice,
    ProtocolError,
    Report,
    Started,
    Stop,
)
from workers.spool import Spool
from workers.stopping import SECOND_NS, StopReason, StopSteps

log = structlog.get_logger("worker")

_BLOCK: Final = 64 * 1024
_LONGEST_POLL_MS: Final = 60_000
_NEVER_NS: Final = 1 << 62
_LAST_WORDS_BYTES: Final = 16 * 1024 * 1024
"""How much is still read after the end: what fits the pipe and the socket does; a survivor's flood does not."""


class Watch:
    """One attempt from the launch to the launcher's last event; runs in the thread that calls `run`.

    `on_started` is called once, when both the launcher and the trainer have said that the trainer is up,
    `on_checkpoint` for each checkpoint that the trainer announces; neither may block. `proof` is passed on.
    """

    def __init__(
        self,
        running: Running,
        orders: Orders,
        spool: Spool,
        clock: Clock,
        *,
        grace_s: float,
        deadline_ns: int,
        on_started: Callable[[StartedEvent, Started], None],
        on_checkpoint: Callable[[Checkpoint], None],
        proof: Proof = Proof.MODEL,
    ) -> None:
        self._running = running
        self._orders = orders
        self._spool = spool
        self._clock = clock
        self._deadline_ns = deadline_ns
        self._grace_ns = round(grace_s * SECOND_NS)
        self._leave_by_ns = _NEVER_NS
        self._lingered = False
        self._on_started = on_started
        self._on_checkpoint = on_checkpoint
        self._proof = proof
        self._steps = StopSteps(grace_s)
        self._until = 0
        self._decoder = Decoder()
        self._lines = LogLines()
        self._process: StartedEvent | None = None
        self._started: Started | None = None
        self._told = False
        self._last_word: Done | Failed | None = None
        self._artifacts: list[Artifact] = []
        self._end: Ended | Busy | LauncherGone | None = None
        self._oom_kills = oom_kills()

    def run(self) -> Watched | None:
        """Watch until the end; None when the attempt was abandoned before it."""
        os.set_blocking(self._running.output, False)
        poll = select.poll()
        control, messages, output = (
            self._running.control.fileno(),
            self._running.messages.fileno(),
            self._running.output,
        )
        for descriptor in (self._orders.fileno(), control, messages, output):
            poll.register(descriptor, select.POLLIN)
        while self._end is None:
            self._follow_orders()
            if self._orders.abandoned:
                return None
            ready = {descriptor for descriptor, _ in poll.poll(self._wait_ms())}
            self._orders.clear()
            if messages in ready and not self._read_messages():
                poll.unregister(messages)
            if output in ready and not self._read_output():
                poll.unregister(output)
            if control in ready:
                self._read_events()
        return self._watched(self._end)

    def _follow_orders(self) -> None:
        now = self._clock.boot_ns()
        if self._orders.until_boot_ns != self._until:
            self._until = self._orders.until_boot_ns
            self._running.extend(self._until)
        if self._orders.stop is not None:
            self._steps.ask(self._orders.stop, now)
        if now >= self._deadline_ns:
            self._steps.ask(StopReason.TIMED_OUT, now)
        if now >= self._leave_by_ns:
            self._leave_by_ns = _NEVER_NS
            self._lingered = True
            self._running.stop(signal.SIGKILL)
        for step in self._steps.take(now):
            if step is None:
                self._running.send(Stop(reason=self._steps.reason or StopReason.CANCEL))
            else:
                self._running.stop(step)

    def _wait_ms(self) -> int:
        """Until the next thing that time brings: a step of a stop, the job's limit, or a trainer that lingers."""
        times = [self._leave_by_ns] if self._steps.reason is not None else [self._deadline_ns, self._leave_by_ns]
        if (step := self._steps.next_ns()) is not None:
            times.append(step)
        return max(0, min((min(times) - self._clock.boot_ns()) // 1_000_000 + 1, _LONGEST_POLL_MS))

    def _read_events(self) -> None:
        for event in self._running.events():
            if isinstance(event, StartedEvent):
                self._process = event
                self._tell_started()
            else:
                self._end = event

    def _read_messages(self) -> bool:
        """Take in what is there; False at the end of the stream."""
        try:
            data = self._running.messages.recv(_BLOCK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        try:
            messages = self._decoder.feed(data)
        except ProtocolError as error:
            log.warning("no_message", error=str(error))
            messages = error.messages
        for message in messages:
            self._take_in(message)
        return bool(data)

    def _take_in(self, message: Message) -> None:
        match message:
            case Report():
                self._spool.report(message)
            case Notice():
                self._spool.notice(message.code, message.message)
            case Artifact():
                self._artifacts.append(message)
            case Checkpoint():
                self._on_checkpoint(message)
            case Started():
                self._started = self._started or message
                self._tell_started()
            case Done() | Failed():
                self._last_word = message
                # Frameworks were seen to hang on their way out; the devices must not wait for that.
                self._leave_by_ns = self._clock.boot_ns() + self._grace_ns
            case Stop():  # only ever goes the other way
                log.warning("stop_from_trainer")

    def _tell_started(self) -> None:
        if self._process is not None and self._started is not None and not self._told:
            self._told = True
            self._on_started(self._process, self._started)

    def _read_output(self) -> bool:
        """Take in what is there; False at the end of the stream."""
        try:
            data = os.read(self._running.output, _BLOCK)
        except BlockingIOError:
            return True
        self._spool.log(self._lines.feed(data))
        return bool(data)

    def _watched(self, end: Ended | Busy | LauncherGone) -> Watched:
        """Read the last words, which may still be in the pipes although their writer is gone."""
        _drain(self._running.messages, self._read_messages)
        _drain(self._running.output, self._read_output)
        self._spool.log(self._lines.finish())
        if isinstance(self._last_word, Failed):
            self._spool.log(self._last_word.detail.splitlines())  # a cause's message is a sentence
        return Watched(
            end=end,
            started=self._started if self._process is not None else None,
            last_word=self._last_word,
            artifacts=tuple(self._artifacts),
            stop=self._steps.reason,
            tail=self._lines.tail(),
            out_of_memory=oom_kills() > self._oom_kills,
            lingered=self._lingered,
            proof=self._proof,
        )


def _drain(source: socket.socket | int, read: Callable[[], bool]) -> None:
    poll = select.poll()
    poll.register(source, select.POLLIN)
    for _ in range(_LAST_WORDS_BYTES // _BLOCK):
        if not poll.poll(0) or not read():
            return
