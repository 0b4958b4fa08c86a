"""One run of the command, from its start to the end of its last process: a single loop, which never waits for a disk.

Output, ends of processes, stops and finished checkpoints all wake one poll. The first rank that fails ends the others.
"""

import contextlib
import os
import select
import signal
import time
import types
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Final

from workers.scripts.keeper import Keeper
from workers.scripts.messages import Channel
from workers.scripts.metrics import Sighting, Track
from workers.scripts.output import Stream, Tail
from workers.scripts.ranks import Exit, Program, Rank, end_strays, reap, start

REPORT_S: Final = 0.5
MOST_POINTS: Final = 20_000
"""More points are reported at once: they would only fill the memory."""
RANKS_GRACE_S: Final = 5.0
"""From the first failure of one rank to the SIGKILL of the others, which TERM asked to leave."""
_TERMINATED: Final = "terminated"
_LOG: Final = 1


class Bell:
    """Wakes the poll: for signals, and for what the checkpoints' thread hands over."""

    def __init__(self) -> None:
        self._ear, self._rope = os.pipe()
        os.set_blocking(self._ear, False)
        os.set_blocking(self._rope, False)
        self.terminated = False
        signal.set_wakeup_fd(self._rope, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_term)
        signal.signal(signal.SIGCHLD, lambda _signum, _frame: None)  # only to be woken

    def fileno(self) -> int:
        return self._ear

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._rope, b"\0")

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while os.read(self._ear, 4096):
                pass

    def _on_term(self, _signum: int, _frame: types.FrameType | None) -> None:
        self.terminated = True


class Run:
    """`start` the programs, then `to_the_end`. What the checkpoints' thread says goes through `later`."""

    def __init__(self, channel: Channel, bell: Bell, track: Track) -> None:
        self._channel = channel
        self._bell = bell
        self._track = track
        self._ranks: dict[int, Rank] = {}
        self._streams: dict[int, list[Stream]] = {}
        self._later: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._keeper: Keeper | None = None
        self._kill_at_s: float | None = None
        self._report_at_s = 0.0
        self._full = False
        self.exits: list[Exit] = []
        self.tails: dict[int, Tail] = {}
        self.stop: str | None = None

    def start(self, programs: Sequence[Program]) -> None:
        """Start one process for each program.

        Raises:
            NotStarted: a program cannot be executed.
            OSError: there can be no more processes.
        """
        try:
            for number, program in enumerate(programs):
                rank = start(number, program)
                prefix = f"[{number}] ".encode() if number else b""
                tail = self.tails[number] = Tail()
                take = None if number else self._take
                self._ranks[rank.pid] = rank
                self._streams[number] = [
                    Stream(pipe, tail, write_log, prefix, take) for pipe in (rank.output, rank.errors)
                ]
        except BaseException:
            end_strays()
            raise

    def later(self, act: Callable[[], None]) -> None:
        """Have the loop do something, behind a report of what came before it; from any thread."""
        self._later.put(act)
        self._bell.ring()

    def to_the_end(self, keeper: Keeper) -> None:
        """Return when no process of the command is left, and all that they wrote was taken in."""
        self._keeper = keeper
        while self._ranks:
            ready = self._wait()
            self._bell.clear()
            self._listen(ready)
            for streams in self._streams.values():
                for stream in [stream for stream in streams if stream.descriptor in ready]:
                    self._read(streams, stream)
            self._take_ends()
            self.catch_up()
            if self._track.changed and (time.monotonic() >= self._report_at_s or self._track.waiting >= MOST_POINTS):
                self.report()
        end_strays()
        self.report()

    def catch_up(self) -> None:
        """Do what waits to be done, each behind the reports that came before it."""
        while not self._later.empty():
            if self._track.changed:
                self.report()
            self._later.get()()

    def report(self) -> None:
        """Report what has come since the last time."""
        if not self._track.changed:
            return
        now_s = time.monotonic()
        self._report_at_s = now_s + REPORT_S
        standing = self._track.standing()
        self._channel.report(self._track.points(), standing.epoch, standing.step, self._track.progress(now_s))

    def _wait(self) -> set[int]:
        poll = select.poll()
        pipes = [stream.descriptor for streams in self._streams.values() for stream in streams]
        for descriptor in (*pipes, self._bell.fileno(), self._channel.fileno()):
            poll.register(descriptor, select.POLLIN)
        due = [at for at in (self._kill_at_s, self._report_at_s if self._track.changed else None) if at is not None]
        wait_ms = max(0, round((min(due) - time.monotonic()) * 1000) + 1) if due else None
        return {descriptor for descriptor, _ in poll.poll(wait_ms)}

    def _listen(self, ready: set[int]) -> None:
        reasons = self._channel.stop_reasons() if self._channel.fileno() in ready else []
        if self._bell.terminated:
            reasons.append(_TERMINATED)
        if reasons and self.stop is None:
            self.stop = reasons[0]
            self._signal_all(signal.SIGTERM)
        if self._kill_at_s is not None and time.monotonic() >= self._kill_at_s:
            self._kill_at_s = None
            self._signal_all(signal.SIGKILL)

    def _signal_all(self, signum: int) -> None:
        for rank in self._ranks.values():
            rank.signal(signum)

    def _read(self, streams: list[Stream], stream: Stream) -> None:
        if stream.read() == 0:  # a process may close its output and go on
            streams.remove(stream)
            os.close(stream.descriptor)

    def _take_ends(self) -> None:
        for end in reap(self._ranks):
            self.exits.append(end)
            self._ranks = {pid: rank for pid, rank in self._ranks.items() if rank.number != end.rank}
            for stream in self._streams.pop(end.rank):
                stream.finish()
            if not end.good and self.stop is None and self._ranks and self._kill_at_s is None:
                self._kill_at_s = time.monotonic() + RANKS_GRACE_S
                self._signal_all(signal.SIGTERM)

    def _take(self, sighting: Sighting) -> bool:
        complete = self._track.take(sighting)
        if sighting.checkpoint is not None and self._keeper is not None:
            self._keeper.announce(sighting.checkpoint)
        if not complete and not self._full:
            self._full = True
            self._channel.notice(
                "metrics_limit",
                "The script reports too many different metrics; those beyond the first 200 stay lines of the log.",
            )
        return complete and bool(sighting.numbers or sighting.position)


def write_log(text: bytes) -> None:
    """Write to the job's log, which is our standard output. A log that nobody takes any more does not end a job."""
    view = memoryview(text)
    with contextlib.suppress(OSError):
        while view:
            view = view[os.write(_LOG, view) :]
