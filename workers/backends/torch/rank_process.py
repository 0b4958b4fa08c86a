"""One of the other ranks of a job, as a process: forked, dying with rank 0, never returning to what forked it."""

import contextlib
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from workers.backends.torch.causes import cause_of
from workers.backends.torch.wire import send
from workers.confinement import end_with

Body = Callable[[int, Connection], None]


@dataclass
class Follower:
    """One of the other ranks. `report`: what it said about its own error. `frozen`: ended because it stood still."""

    rank: int
    pid: int
    pidfd: int
    connection: Connection
    status: int | None = None
    report: dict[str, Any] | None = None
    frozen_looks: int = 0
    frozen: bool = False


def fork(rank: int, pipes: Sequence[tuple[Connection, Connection]], body: Body) -> Follower:
    parent = os.getpid()
    sys.stdout.flush()
    sys.stderr.flush()
    with warnings.catch_warnings():
        # Python warns of a fork beside threads. The only ones are OpenBLAS's, which it ends for the fork itself.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    ours, theirs = pipes[rank - 1]
    if pid == 0:
        for place, (end_of_0, own_end) in enumerate(pipes, start=1):
            if not end_of_0.closed:
                end_of_0.close()  # else a rank would not see the end of rank 0
            if place != rank:
                own_end.close()
        _be(rank, theirs, body, parent)
    return Follower(rank, pid, os.pidfd_open(pid), ours)


def _be(rank: int, connection: Connection, body: Body, parent: int) -> None:
    """Be a rank: never returns. The process leaves without freeing anything, which was seen to hang."""
    status = 1
    try:
        end_with(parent)
        # The whole group gets the request to stop; rank 0 decides when, and the others follow.
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, signal.SIG_IGN)
        body(rank, connection)
        status = 0
    except EOFError:
        pass  # rank 0 has left
    except BaseException as error:  # noqa: BLE001 - whatever it is, rank 0 says it
        _report(rank, connection, error)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _report(rank: int, connection: Connection, error: BaseException) -> None:
    """Say to rank 0 what happened, and to the log, in case that rank 0 is past hearing it."""
    cause = cause_of(error)
    text = "".join(traceback.format_exception(error))
    sys.stderr.write(f"Rank {rank} failed.\n{text}")
    head: dict[str, Any] = {
        "error": "".join(traceback.format_exception_only(error)).strip(),
        "traceback": text,
        "cause": None if cause is None else str(cause),
        "at": time.monotonic(),
    }
    with contextlib.suppress(OSError):
        send(connection, head)
