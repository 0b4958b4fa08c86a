"""What a test may leave behind: nothing. A snapshot before it is compared with the state after it."""

import os
import threading
import time
from dataclasses import dataclass

import psutil

from tests.servers import SERVER_PIDS

# Python's own helper of multiprocessing lives until the interpreter ends.
_LASTING = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
# pytest's own mark, and what importing a framework sets in its own process.
_SET_BY_IMPORTS = ("PYTEST_", "KMP_", "TF2_", "TF_", "TPU_", "HDF5_", "ENABLE_RUNTIME_UPTIME_TELEMETRY")
_GRACE_S = 2.0


@dataclass(frozen=True)
class Snapshot:
    threads: frozenset[threading.Thread]
    children: frozenset[int]
    environment: dict[str, str]


def snapshot() -> Snapshot:
    environment = {name: text for name, text in os.environ.items() if not name.startswith(_SET_BY_IMPORTS)}
    return Snapshot(frozenset(threading.enumerate()), frozenset(_children()), environment)


def leaks_since(before: Snapshot) -> list[str]:
    """One sentence per leak. What is just ending gets a moment: a thread still lives right after its last act."""
    until = time.monotonic() + _GRACE_S
    while True:
        found = _differences(before)
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.01)


def _differences(before: Snapshot) -> list[str]:
    after = snapshot()
    threads = [f"thread {t.name}" for t in after.threads - before.threads if t.is_alive() and not t.daemon]
    children = [f"child process {pid}: {_children().get(pid)}" for pid in after.children - before.children]
    changed = [
        f"environment variable {name}"
        for name in sorted(before.environment.keys() | after.environment.keys())
        if before.environment.get(name) != after.environment.get(name)
    ]
    return threads + children + changed


def _children() -> dict[int, str]:
    found = {}
    for child in psutil.Process().children():
        try:
            command = " ".join(child.cmdline())
        except psutil.ZombieProcess:
            command = "(ended, never waited for)"
        except psutil.NoSuchProcess:
            continue
        if child.pid not in SERVER_PIDS and not any(name in command for name in _LASTING):
            found[child.pid] = command
    return found
