"""Ends code that starts too many processes where the kernel does not: its limit does not hold for root.

Only a worker that runs as root, and gives its trainers no users of their own, needs this. It looks ten times in a
second, so for a moment there may be more processes than allowed. Linux; standard library only: the launcher imports it.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable
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
        if len(Family(os.getpid()).new()) <= self._most:
            return False
        # Into the attempt's log: the end that follows is told with its last lines.
        sys.stderr.write(f"Killed: it had started more than {self._most} processes (TRAINSHED_CODE_MAX_PROCESSES).\n")
        sys.stderr.flush()
        kill_descendants(os.getpid())
        return True


class Family:
    """The living processes below one, found step by step: each is looked at once, so that forks can be overtaken."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._members: set[int] = set()
        self._strangers: set[int] = set()

    def new(self) -> list[ProcessStat]:
        """Those that were not given before. One whose parents have ended is a child of `root`, which adopts them."""
        unknown = [pid for pid in all_pids() if pid not in self._members and pid not in self._strangers]
        found: dict[int, ProcessStat] = {pid: stat for pid in unknown if (stat := read_stat(pid)) is not None}
        ours: list[ProcessStat] = []
        while more := [stat for stat in found.values() if stat.ppid == self._root or stat.ppid in self._members]:
            for stat in more:
                self._members.add(found.pop(stat.pid).pid)
            ours += more
        self._strangers.update(found)
        return [stat for stat in ours if stat.state not in ("Z", "X")]


def kill_descendants(root: int, *, within_s: float = FREEZE_S) -> None:
    """Kill them until no new one appears, group by group: the kernel lets no member fork while it signals a group."""
    give_up = time.monotonic() + within_s
    family, overtaken = Family(root), False
    while time.monotonic() < give_up:
        new = family.new()
        if not new and overtaken:
            return
        # Once more from the beginning: a number may have been a stranger's before it was one of theirs.
        family, overtaken = (family, False) if new else (Family(root), True)
        for group in {stat.pgid for stat in new} - {os.getpgid(root)}:
            _kill(os.killpg, group)
        for stat in new:
            _kill(os.kill, stat.pid)


def _kill(how: Callable[[int, int], None], number: int) -> None:
    """They are below this process, which reaps only the first of them, so their numbers are not soon another's."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        how(number, signal.SIGKILL)


def _entities() -> int:
    """How many processes and threads the machine has, by proc_loadavg(5)."""
    with open("/proc/loadavg") as file:  # noqa: PTH123 - pathlib costs the launcher 5 ms
        return int(file.read().split()[3].partition("/")[2])
