"""How many processes there are, and how many more there may be. Threads count, as they do for the kernel.

Linux; standard library only: the launcher imports this.
"""

from typing import Final

from workers.processes import all_pids, read_status

SHARE: Final = 2
"""One job may use up to this part of what the container allows: its worker must be able to end it."""
_CGROUPS: Final = "/sys/fs/cgroup"


def tasks_of(uid: int) -> int:
    """The threads of all processes of this user."""
    return sum(threads for pid in all_pids() if (threads := _threads(pid, uid)) is not None)


def allowance(wanted: int, most: int | None = None) -> int:
    """How many processes a job may have: what is wanted, but no more than half of what the container may have."""
    most = container_limit() if most is None else most
    return wanted if most is None else max(1, min(wanted, most // SHARE))


def container_limit(root: str = _CGROUPS, own: str = "/proc/self/cgroup") -> int | None:
    """The least `pids.max` of the control groups that this process is in, as far as they can be seen."""
    found = [limit for path in _files(root, own) if (limit := _number(path)) is not None]
    return min(found, default=None)


def _files(root: str, own: str) -> list[str]:
    """Both versions of control groups; a container sees its own group as the root."""
    paths = [f"{root}/pids.max", f"{root}/pids/pids.max"]
    try:
        with open(own) as file:  # noqa: PTH123 - pathlib costs the launcher 5 ms
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        return paths
    for _, controllers, group in (line for line in lines if len(line) == 3):  # noqa: PLR2004 - cgroups(7)
        if controllers in ("", "pids"):
            place = f"{root}/{controllers}".rstrip("/") + group.rstrip("/")
            while place not in (root, f"{root}/{controllers}"):
                paths.append(f"{place}/pids.max")
                place = place.rpartition("/")[0]
    return paths


def _number(path: str) -> int | None:
    try:
        with open(path) as file:  # noqa: PTH123 - as above
            text = file.read().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None


def _threads(pid: int, uid: int) -> int | None:
    """The threads of a process; None when it is not this user's, or has gone."""
    fields = read_status(pid)
    if fields is None or str(uid).encode() != fields.get(b"Uid", b"").split()[0]:
        return None
    return int(fields.get(b"Threads", b"1"))
