"""Waiting for facts with a deadline, never for time to pass."""

import os
import time
from collections.abc import Callable
from pathlib import Path

_LIMIT_S = 30.0


def until(fact: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _LIMIT_S
    while not fact():
        if time.monotonic() > deadline:
            raise AssertionError(f"not in {_LIMIT_S:g} s: {what}")
        time.sleep(0.01)


def is_gone(pid: int) -> bool:
    """Whether the process has ended; a zombie that nobody has reaped yet has."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return fields[0] == "Z"


def has_text(path: Path, text: str) -> bool:
    return path.exists() and text in path.read_text()


def pid_in(path: Path) -> int:
    """The number that a child wrote into a file, once it is there whole."""
    until(lambda: path.exists() and path.read_text().endswith("\n"), f"a number in {path.name}")
    return int(path.read_text())


def own_pid_code(path: Path) -> str:
    """Code that writes its own process id to `path`."""
    return f"import os; open({os.fspath(path)!r}, 'w').write(f'{{os.getpid()}}\\n')"
