"""Ends code that starts too many processes where the kernel does not: its limit does not hold for root.

Only a worker that runs as root, and gives its trainers no users of their own, needs this. It looks ten times in a
second, so for a moment there may be more processes than allowed. Linux; standard library only: the launcher imports it.
"""

import contextlib
import os
import signal
import sys
import time
from typing import Final

from workers.process_counts import allowance
from workers.processes import FREEZE_S, ProcessStat, all_pids, read_stat

LOOK_MS: Final = 100


class ForkGuard:
    """For the descendants of this process, which has started the code."""

    def __init__(self, most: int) -> None:
        self._most = allowance(most)
        self._others = _entities()

    def check(self) -> bool:
        """Kill all descendants if they are too many; True when they were."""
        if _entities() - self._others <= self._most:  # cheap, and no more can be ours
            return False
        if len(descendants(os.getpid())) <= self._most:
            return False
        # Into the attempt's log: the end that follows is told with its last lines.
        sys.stderr.write(f"Killed: it had started more than {self._most} processes (TRAINSHED_CODE_MAX_PROCESSES).\n")
        sys.stderr.flush()
        kill_descendants(os.getpid())
        return True


def descendants(root: int) -> list[ProcessStat]:
    """All living processes below this one, as far as their line of parents was whole while it was read."""
    children: dict[int, list[ProcessStat]] = {}
    for pid in all_pids():
        stat = read_stat(pid)
        if stat is not None and stat.state not in ("Z", "X"):
            children.setdefault(stat.ppid, []).append(stat)
    found, waiting = [], [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += [stat.pid for stat in below]
    return found


def kill_descendants(root: int) -> None:
    """Stop them until no new one appears, then kill all: what is stopped starts no more, and keeps its place."""
    give_up = time.monotonic() + FREEZE_S
    stopped: set[int] = set()
    while time.monotonic() < give_up:
        new = [stat.pid for stat in descendants(root) if stat.pid not in stopped]
        if not new:
            break
        for pid in new:
            _signal(pid, signal.SIGSTOP)
        stopped.update(new)
    for stat in descendants(root):
        _signal(stat.pid, signal.SIGKILL)


def _signal(pid: int, signum: int) -> None:
    """They are below this process, which reaps only the first of them, so their numbers are not soon another's."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signum)


def _entities() -> int:
    """How many processes and threads the machine has, by proc_loadavg(5)."""
    with open("/proc/loadavg") as file:  # noqa: PTH123 - pathlib costs the launcher 5 ms
        return int(file.read().split()[3].partition("/")[2])
