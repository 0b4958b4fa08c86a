"""Whether the kernel killed something for memory: the counter of the control group that the worker is in."""

from pathlib import Path
from typing import Final

from workers.inventory.cores import group_folders

_CGROUPS: Final = Path("/sys/fs/cgroup")
_SELF: Final = Path("/proc/self/cgroup")
_VMSTAT: Final = Path("/proc/vmstat")


def oom_kills(*, cgroups: Path = _CGROUPS, membership: Path = _SELF, vmstat: Path = _VMSTAT) -> int:
    """How many processes were killed for memory so far; compare two readings.

    Version 2 of cgroups counts each kill in the group's `memory.events`, whichever limit was hit; version 1 in
    `memory.oom_control`. Without either the whole machine's counter has to do.
    """
    places = [
        folder / name
        for folder in group_folders(cgroups, membership, "memory")
        for name in ("memory.events", "memory.oom_control")
    ]
    return next((count for place in [*places, vmstat] if (count := _counter(place)) is not None), 0)


def _counter(path: Path) -> int | None:
    try:
        lines = path.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
