"""A sign of life in a file: a loop writes it each time round, and a health check of another process reads it.

The file is replaced by a rename, so a reader sees one whole beacon or the one before. Times in it are boot-clock
nanoseconds (`app.clock`): they stay right when somebody sets the time, and a restart of the machine makes old ones
recognisable.
"""

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

WORKER_BEACON: Final = "worker.health.json"
CONTROL_BEACON: Final = "control.health.json"
AT: Final = "at_boot_ns"
"""The key that every beacon has: when it was written."""


def write_beacon(path: Path, facts: Mapping[str, object]) -> bool:
    """Replace the beacon; whether that went well.

    It never raises: a loop must not end because its health cannot be told. What was not written grows old, and an old
    beacon is read as ill. `facts` must be JSON and hold `at_boot_ns`.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(dict(facts)), encoding="utf-8")
        unfinished.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()
        return False
    return True


def read_beacon(path: Path) -> dict[str, Any] | None:
    """The last beacon; None when there is none, it cannot be read, or it is no beacon."""
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return facts if isinstance(facts, dict) and isinstance(facts.get(AT), int) else None


def age_s(then_boot_ns: int, now_boot_ns: int) -> float | None:
    """Seconds since then; None when `then` lies ahead: it was written before this machine started."""
    passed = now_boot_ns - then_boot_ns
    return passed / 1e9 if passed >= 0 else None
