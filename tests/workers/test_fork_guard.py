"""What ends code that starts too many processes, where the kernel's limit does not hold: on few, real processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workers.eventually import eventually
from workers.fork_guard import Family, ForkGuard, kill_descendants
from workers.processes import read_stat

ROOT = Path(__file__).parents[2]

# Two children; one leaves into a session of its own, and its parent ends, so that it is adopted. All wait.
TREE = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        signal.pause()
    os._exit(0)
os.wait()
if os.fork() == 0:
    signal.pause()
print("up", flush=True)
signal.pause()
"""


@pytest.fixture
def tree() -> Iterator[int]:
    """The pid of a process with two descendants in different sessions."""
    with subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE) as root:
        assert root.stdout is not None
        root.stdout.readline()
        yield root.pid
        kill_descendants(root.pid)
        root.kill()


def living(pid: int) -> bool:
    stat = read_stat(pid)
    return stat is not None and stat.state != "Z"


class TestFamily:
    def test_all_below_are_found_in_whatever_session(self, tree: int) -> None:
        found = Family(tree).new()

        assert len(found) == 2
        assert len({stat.sid for stat in found}) == 2
        assert tree not in {stat.pid for stat in found}

    def test_each_is_given_once(self, tree: int) -> None:
        family = Family(tree)
        family.new()

        assert family.new() == []


class TestKilling:
    def test_all_below_end_and_the_root_goes_on(self, tree: int) -> None:
        pids = [stat.pid for stat in Family(tree).new()]

        kill_descendants(tree)

        eventually(lambda: not any(living(pid) for pid in pids))
        assert living(tree)

    def test_without_any_it_returns_at_once(self) -> None:
        kill_descendants(os.getpid(), within_s=0.0)

        assert living(os.getpid())


class TestGuard:
    def run(self, children: int, most: int) -> tuple[int, str]:
        """A process that guards itself and has this many children; how many are left, and what it said."""
        code = f"""
import os, signal
from workers.fork_guard import Family, ForkGuard
guard = ForkGuard({most})
for _ in range({children}):
    if os.fork() == 0:
        signal.pause()
killed = guard.check()
while killed and Family(os.getpid()).new():
    pass
left = Family(os.getpid()).new()
print(len(left), flush=True)
for stat in left:
    os.kill(stat.pid, signal.SIGKILL)
"""
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
        )
        return int(done.stdout), done.stderr

    def test_too_many_are_killed_and_it_is_said(self) -> None:
        left, said = self.run(children=12, most=8)

        assert left == 0
        assert said == "Killed: it had started more than 8 processes (TRAINSHED_CODE_MAX_PROCESSES).\n"

    def test_as_many_as_allowed_live(self) -> None:
        assert self.run(children=6, most=8) == (6, "")

    def test_without_any_nothing_happens(self) -> None:
        assert not ForkGuard(8).check()
