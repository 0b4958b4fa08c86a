"""A process of root's with no more capabilities than the worker's container has: `python -m … NAME FOLDER`.

It runs one of `scenarios` in a fresh interpreter and prints what came out as JSON.
"""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from workers.privileges import NEEDED

ROOT = Path(__file__).parents[3]
GROUP = 10_001
"""The worker's group in its container (docs/deployment.md)."""
PACKAGES = Path(pytest.__file__).parents[1]
PATH = f"{ROOT}:{PACKAGES}"
_PR_CAPBSET_DROP = 24
_SCENARIOS = "tests.workers.users.scenarios"
_LIMIT_S = 120


def _open_to_all(path: Path) -> bool:
    return all(folder.stat().st_mode & 0o001 for folder in (path, *path.parents))


def _python() -> Path | None:
    """An interpreter of this version that every user may run; the system's own, where ours lies in a private home."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    names = [sys.executable, f"/usr/local/bin/{version}", f"/usr/bin/{version}"]
    return next((Path(name) for name in names if Path(name).exists() and _open_to_all(Path(name).resolve())), None)


def reason_to_skip() -> str | None:
    """Why users of their own cannot be tried here."""
    if os.geteuid() != 0:
        return "needs root, to give trainers users of their own"
    if _python() is None or not _open_to_all(ROOT) or not _open_to_all(PACKAGES):
        return "other users can reach no interpreter of this version, or not this checkout and its packages"
    return None


needs_root = pytest.mark.skipif(reason_to_skip() is not None, reason=str(reason_to_skip()))


def confined(name: str, folder: Path, *, group: int = GROUP, scenarios: str = _SCENARIOS) -> Any:
    """Run a scenario as root with the four capabilities alone; what it returned."""
    python = _python()
    assert python is not None
    done = subprocess.run(
        [str(python), "-P", "-m", "tests.workers.users.confined", name, str(folder), str(group), scenarios],
        check=False,
        capture_output=True,
        cwd="/",
        env={**os.environ, "PYTHONPATH": PATH},
        timeout=_LIMIT_S,
    )
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout.splitlines()[-1])


def main(name: str, folder: str, group: str, scenarios: str) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    for number in range(64):
        if number not in NEEDED.values():
            library.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    os.setgroups([])
    os.setresgid(int(group), int(group), int(group))
    os.execv(sys.executable, [sys.executable, "-P", "-m", scenarios, name, folder])  # noqa: S606 - no shell is the point


if __name__ == "__main__":
    main(*sys.argv[1:])
