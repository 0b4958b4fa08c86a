"""System V shared memory, queues and semaphores of a trainer's user, which outlive every process that knew of them.

Nobody but who made one may remove it without CAP_SYS_ADMIN, so a child becomes that user for it:
`python -P -m workers.user_memory UID`. Standard library only.
"""

import ctypes
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from workers.privileges import become

TIMEOUT_S: Final = 30.0
LISTS: Final = Path("/proc/sysvipc")
KINDS: Final[Mapping[str, str]] = {"shm": "shmid", "msg": "msqid", "sem": "semid"}
"""The files of `LISTS`, and the column of each that holds the number."""
_IPC_RMID: Final = 0


def left_by(uid: int, lists: Path = LISTS) -> list[tuple[str, int]]:
    """Kind and number of what a user has made; to whom it was given since does not matter. Empty without /proc."""
    found: list[tuple[str, int]] = []
    for kind, number in KINDS.items():
        try:
            head, *lines = (line.split() for line in (lists / kind).read_text(encoding="ascii").splitlines())
        except (OSError, ValueError):
            continue
        maker, which = head.index("cuid"), head.index(number)
        found += [(kind, int(line[which])) for line in lines if line[maker] == str(uid)]
    return found


def remove_memory_of(uid: int) -> None:
    """Remove what the user has left; no process of it may be running. Costs three small reads when there is nothing."""
    if not left_by(uid):
        return
    try:
        subprocess.run(
            [sys.executable, "-P", "-m", "workers.user_memory", str(uid)],
            cwd="/",
            env={name: os.environ[name] for name in ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH") if name in os.environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return  # the next one who gets this user tries again


def main(uid: int) -> None:
    become(uid)
    library = ctypes.CDLL(None)
    for kind, number in left_by(uid):
        if kind == "sem":
            library.semctl(number, 0, _IPC_RMID)
        else:
            getattr(library, f"{kind}ctl")(number, _IPC_RMID, None)


if __name__ == "__main__":
    main(int(sys.argv[1]))
