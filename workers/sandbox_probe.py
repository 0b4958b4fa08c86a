"""How this host can shut off the network for code of users, found out by a process that does it.

`python -P -m workers.sandbox_probe [UID]` is the child: it enters a sandbox as such code would, says how, and ends. The
child's side imports the standard library only.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from workers.sandbox import FILTER, NoIsolation, Sandbox, enter

TIMEOUT_S: Final = 30.0
_PROBE: Final = Sandbox(network=False, needs_loopback=False, max_file_bytes=1024**2, max_processes=1024)
_NONE: Final = "nothing"


def isolation(
    uid: int | None = None, *, python: Path = Path(sys.executable), timeout_s: float = TIMEOUT_S
) -> str | None:
    """The means by which code without the network is kept from it here; None: there is none. Never raises.

    `uid`: of a trainer, where trainers have users of their own.
    """
    command = [str(python), "-P", "-m", "workers.sandbox_probe", *([] if uid is None else [str(uid)])]
    environment = {name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd="/", timeout=timeout_s, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    said = done.stdout.strip()
    return said if said and said != _NONE else None


def lacking(means: str | None) -> str | None:
    """What jobs cannot have on a host with these means, for whoever runs it; None: they lack nothing."""
    if means is None:
        return (
            "Code of users cannot be kept from the network here: neither network namespaces nor filters of system "
            "calls can be used. Its jobs end with the cause environment_failed, unless they ask for the network."
        )
    if means == FILTER:
        return (
            "Code of users is kept from the network by a filter of system calls alone, since neither network "
            "namespaces nor user namespaces can be made here. So it has no loopback device either: a job of several "
            "processes ends with the cause environment_failed, unless it asks for the network. See docs/security.md."
        )
    return None


def main() -> None:
    uid = int(sys.argv[1]) if len(sys.argv) > 1 else None
    try:
        sys.stdout.write(enter(_PROBE, uid) or _NONE)
    except NoIsolation:
        sys.stdout.write(_NONE)


if __name__ == "__main__":
    main()
