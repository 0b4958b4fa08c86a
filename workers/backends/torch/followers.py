"""The other ranks of a job, seen from rank 0: started by fork, told what to do, watched, and blamed.

A rank dies with rank 0, whatever ends it: the kernel kills it. That a rank has died shows in three ways, and any of
them ends the job within seconds: rank 0's own collective fails (Gloo notices at once), the rank's answer does not come,
or, where a collective would wait for ever, a thread that looks on ends the process with a line in the log. That thread
also ends a rank that somebody has frozen while rank 0 runs, for which all others would wait in silence.
"""

import contextlib
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from typing import Any, Final

from numpy.typing import NDArray

from app.errors import Cause
from workers.backends.base import TrainingFailed
from workers.backends.torch.causes import RankError
from workers.backends.torch.rank_process import Body, Follower, fork
from workers.backends.torch.wire import ByName, receive, send
from workers.processes import read_stat

FAULT_S: Final = 2.0
"""How long to look for the rank at fault after an error of rank 0's own."""

CASCADE_S: Final = 0.5
"""How long to wait for further ranks after one was found: an error of the first can reach us by way of a third."""

UNSTICK_S: Final = 8.0
"""How long rank 0 may stay in a collective after a rank has died; then the process ends itself."""

LOOK_S: Final = 1.0
FROZEN_LOOKS: Final = 5
"""How often in a row a rank must be found frozen, a look a second: not once, as when a whole job is being thawed."""

CLOSE_S: Final = 5.0
"""How long ranks may take to leave when they are told to; then they are killed."""

_FROZEN: Final = "T"  # stopped by a signal; one that a debugger holds is in state t


class RankFailed(TrainingFailed):
    """Another rank of the job failed, which ends the job; the message names it."""

    code = "rank_failed"


class Followers:
    """The ranks from 1 on; `body(rank, connection)` is what each of them does, in its own process."""

    def __init__(self, world: int, body: Body) -> None:
        self._world = world
        self._busy = threading.Event()
        self._noticed = threading.Event()
        self._quiet = os.eventfd(0, os.EFD_CLOEXEC)
        pipes = [Pipe() for _ in range(1, world)]
        self._all = [fork(rank, pipes, body) for rank in range(1, world)]
        for _, theirs in pipes:
            theirs.close()
        self._watcher = threading.Thread(target=self._watch, name="ranks", daemon=True)
        self._watcher.start()

    def tell(self, head: Mapping[str, object], arrays: Mapping[str, NDArray[Any]] | None = None) -> None:
        """Tell every rank what to do next."""
        self._busy.set()
        for follower in self._all:
            send(follower.connection, head, arrays)

    def answers(self, limit_s: float | None = None) -> list[ByName]:
        """Wait until every rank has done what it was told, and return what each gives back.

        Raises:
            RankFailed: a rank did not answer within the limit.
            OSError, EOFError: a rank is gone, or will be: ask `fault`.
        """
        given = []
        for follower in self._all:
            if limit_s is not None and not follower.connection.poll(limit_s):
                raise RankFailed(f"Rank {follower.rank} of {self._world} did not start within {limit_s:g} s.")
            head, arrays = receive(follower.connection)
            if "error" in head:
                follower.report = head
                raise EOFError
            given.append(arrays)
        self._busy.clear()
        return given

    def fault(self, error: Exception) -> Exception:
        """Return what to raise for an error of rank 0: that of the rank at fault, if it is another one's. Ends all."""
        self._noticed.set()
        deadline = time.monotonic() + (FAULT_S if not isinstance(error, RankFailed) else 0.0)
        left = list(self._all)
        while left and (ended := _ended(left, deadline - time.monotonic())):
            deadline = min(deadline, time.monotonic() + CASCADE_S)
            for follower in ended:
                _collect(follower)
            left = [follower for follower in left if follower not in ended]
        found = sorted((each for each in self._all if each.report is not None or each.status is not None), key=_blame)
        self.end()
        return self._error_of(found[0]) if found else error

    def _error_of(self, follower: Follower) -> Exception:
        """Put a rank's end into words; the first error counts, not those that it caused elsewhere."""
        name = f"Rank {follower.rank} of {self._world}"
        if follower.report is not None:
            cause = follower.report["cause"]
            if cause is not None:
                return RankError(f"{name}: {follower.report['traceback']}", Cause(cause))
            failed = RankFailed(f"{name} failed: {follower.report['error']}", Cause.USER_CODE)
            failed.__cause__ = RuntimeError(f"in rank {follower.rank}\n{follower.report['traceback']}")
            return failed
        how = "was frozen, and was ended for it" if follower.frozen else _how(follower.status or 0)
        sentence = f"{name} {how}. The job cannot go on without it."
        # What NCCL and gloo share lies in /dev/shm; who touches it when that is full gets this signal.
        full = not follower.frozen and _signal_of(follower.status or 0) == signal.SIGBUS
        return RankFailed(sentence, Cause.SHARED_MEMORY if full else Cause.TRAINER_KILLED)

    def close(self) -> None:
        """Tell the ranks to leave, wait for it, and kill what stays."""
        self._noticed.set()
        for follower in self._all:
            with contextlib.suppress(OSError):  # it is gone already
                send(follower.connection, {"order": "close"})
        deadline = time.monotonic() + CLOSE_S
        left = list(self._all)
        while left and (ended := _ended(left, deadline - time.monotonic())):
            left = [follower for follower in left if follower not in ended]
        self.end()

    def end(self) -> None:
        """Kill the ranks that are left, and reap all. Harmless when called twice."""
        if self._quiet < 0:
            return
        os.eventfd_write(self._quiet, 1)
        self._watcher.join()
        for follower in self._all:
            if follower.status is None:
                os.kill(follower.pid, signal.SIGKILL)  # not reaped yet, so the pid is still its own
                _, follower.status = os.waitpid(follower.pid, 0)
            follower.connection.close()
            os.close(follower.pidfd)
        os.close(self._quiet)
        self._quiet = -1

    def _watch(self) -> None:
        poll = select.poll()
        for descriptor in (self._quiet, *(follower.pidfd for follower in self._all)):
            poll.register(descriptor, select.POLLIN)
        while not (ready := poll.poll(LOOK_S * 1000)):
            self._end_frozen()
        found = {descriptor for descriptor, _ in ready}
        if self._quiet in found or not self._busy.is_set() or self._noticed.wait(UNSTICK_S):
            return  # told to leave; or rank 0 meets it itself, with its next order at the latest
        for follower in self._all:
            if follower.pidfd in found:
                name = f"Rank {follower.rank} of {self._world}"
                sys.stderr.write(f"{name} {_how(_status(follower))}, and rank 0 waits for it in vain: leaving.\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)

    def _end_frozen(self) -> None:
        for follower in self._all:
            stat = read_stat(follower.pid)
            follower.frozen_looks = follower.frozen_looks + 1 if stat is not None and stat.state == _FROZEN else 0
            if follower.frozen_looks >= FROZEN_LOOKS:
                follower.frozen = True
                with contextlib.suppress(ProcessLookupError):  # rank 0 has just found its end and collected it
                    signal.pidfd_send_signal(follower.pidfd, signal.SIGKILL)


def _ended(followers: Sequence[Follower], wait_s: float) -> list[Follower]:
    poll = select.poll()
    for follower in followers:
        poll.register(follower.pidfd, select.POLLIN)
    found = {descriptor for descriptor, _ in poll.poll(max(0.0, wait_s) * 1000)}
    return [follower for follower in followers if follower.pidfd in found]


def _collect(follower: Follower) -> None:
    """Take the status of a rank that has ended, and its last words."""
    if follower.status is None:
        _, follower.status = os.waitpid(follower.pid, 0)
    while follower.report is None:
        try:
            head, _ = receive(follower.connection)
        except (EOFError, OSError):
            return
        follower.report = head if "error" in head else None


def _blame(follower: Follower) -> tuple[int, float]:
    """Killed ranks first, then the earliest error: clocks of processes of one host agree."""
    if follower.report is not None:
        return 1, follower.report["at"]
    return (0 if os.WIFSIGNALED(follower.status or 0) else 2), 0.0


def _status(follower: Follower) -> int:
    """Look at the status of a rank that has ended, and leave it to be collected."""
    found = os.waitid(os.P_PID, follower.pid, os.WEXITED | os.WNOWAIT)
    if found is None:  # cannot be: only with WNOHANG
        return 0
    return found.si_status if found.si_code in {os.CLD_KILLED, os.CLD_DUMPED} else found.si_status << 8


def _signal_of(status: int) -> int | None:
    return os.WTERMSIG(status) if os.WIFSIGNALED(status) else None


def _how(status: int) -> str:
    if (number := _signal_of(status)) is not None:
        return f"was ended by signal {number} ({signal.Signals(number).name})"
    return f"left with status {os.waitstatus_to_exitcode(status)}"
