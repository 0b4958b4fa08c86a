"""Whose the processes on a device are: ours never count, a display's do not while they are small, others do.

Ours are the worker's descendants, and all in a session or group of a trainer that runs. NVML numbers processes as the
host does. In a container with process ids of its own such a number means nothing to us; then the rule is: as long as
a trainer of ours is on the device, as many unknown numbers as it has devices are taken for its own, those that were
there before it excepted; on a device without a trainer of ours each is somebody else's.
"""

import os
import pwd
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Protocol

from app.fleet.devices import IN_USE_ELSEWHERE, OK, DeviceFacts, DeviceProcess
from workers.inventory.base import Listing
from workers.processes import ProcessStat, read_stat

_FIRST_PID_NAMESPACE: Final = "pid:[4026531836]"
"""PROC_PID_INIT_INO of include/linux/proc_ns.h: the namespace of the host itself."""
_KERNEL_NAME: Final = 15
_LONGEST_LINE_OF_PARENTS: Final = 64


@dataclass(frozen=True)
class Occupant:
    """An attempt of ours on a device: its trainer's process group, once it is up, and how many devices it has."""

    key: tuple[str, int]
    pgid: int | None
    devices: int


@dataclass(frozen=True)
class Policy:
    """`ignored` names do not count while they use less than `memory_bytes`; nor does less than that of nobody known."""

    ignored: frozenset[str] = frozenset()
    memory_bytes: int = 1 << 30


class Processes(Protocol):
    """What the host's process table tells; tests have one of their own."""

    is_hosts: bool
    """Whether numbers here are those of the host, so that one that is not there has ended."""

    def is_ours(self, pid: int, groups: Collection[int]) -> bool | None:
        """Whether it descends from the worker or is in one of the groups; None: there is no such process."""
        ...

    def owner(self, pid: int) -> tuple[str | None, str | None]:
        """User and name, as far as they can be read."""
        ...


class SystemProcesses:
    """`/proc`, as seen by the worker. A process that is there and cannot be read (`hidepid`) is somebody else's."""

    def __init__(self, read: Callable[[int], ProcessStat | None] = read_stat) -> None:
        self.is_hosts = _namespace() == _FIRST_PID_NAMESPACE
        self._read = read
        self._worker = os.getpid()

    def is_ours(self, pid: int, groups: Collection[int]) -> bool | None:
        stat = self._read(pid)
        if stat is None:
            return False if _is_there(pid) else None
        for _ in range(_LONGEST_LINE_OF_PARENTS):
            if stat.pid == self._worker or stat.pgid in groups or stat.sid in groups:
                return True
            stat = self._read(stat.ppid) if stat.ppid > 0 else None
            if stat is None:
                return False
        return False

    def owner(self, pid: int) -> tuple[str | None, str | None]:
        folder = Path("/proc", str(pid))
        try:
            uid = folder.stat().st_uid
            name = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None, None
        try:
            return pwd.getpwuid(uid).pw_name, name
        except KeyError:
            return str(uid), name


def _is_there(pid: int) -> bool:
    if pid <= 0:  # which kill takes for a whole group
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")  # noqa: PTH115 - the text of the link, which names no file
    except OSError:
        return ""


class Neighbours:
    """Judges one listing after the other; remembers what it needs of the last one. For one thread."""

    def __init__(self, processes: Processes, policy: Policy) -> None:
        self._processes = processes
        self._policy = policy
        self._known: dict[str, frozenset[int]] = {}
        """By device: numbers that are somebody else's, as of the last listing."""
        self._own: dict[tuple[str, tuple[str, int]], set[int]] = {}
        """By device and attempt: unknown numbers that are taken for the trainer's own."""
        self._unexplained: frozenset[str] = frozenset()

    def judge(self, listing: Listing, occupants: Mapping[str, Occupant]) -> tuple[DeviceFacts, ...]:
        """The devices with only others' processes, and `in_use_elsewhere` where these keep a healthy one from us.

        `occupants` are our attempts by device: all that were on it from before the listing to after it.
        """
        groups = {occupant.pgid for occupant in occupants.values() if occupant.pgid is not None}
        self._own = {
            (device, key): pids
            for (device, key), pids in self._own.items()
            if device in occupants and occupants[device].key == key
        }
        judged, unexplained = [], set()
        for device in listing.devices:
            occupant = occupants.get(device.id)
            others = tuple(self._others(device, occupant, groups))
            hidden = 0 if occupant or others else self._hidden_bytes(device, listing.used_bytes.get(device.id))
            if hidden:
                unexplained.add(device.id)
            judged.append(_marked(device, others, hidden if device.id in self._unexplained else 0))
        self._known = {device.id: frozenset(process.pid for process in device.processes) for device in judged}
        self._unexplained = frozenset(unexplained)
        return tuple(judged)

    def _others(self, device: DeviceFacts, occupant: Occupant | None, groups: Collection[int]) -> list[DeviceProcess]:
        found = []
        for process in device.processes:
            ours = self._processes.is_ours(process.pid, groups)
            if ours or (ours is None and process.name is None and self._passes(device.id, process.pid, occupant)):
                continue
            named = process
            if process.name is None and ours is not None:
                user, name = self._processes.owner(process.pid)
                named = replace(process, user=user, name=name)
            if not self._is_display(named):
                found.append(named)
        return found

    def _passes(self, device_id: str, pid: int, occupant: Occupant | None) -> bool:
        """Whether a number that names no process here is no neighbour: it has ended, or it is our trainer's."""
        if self._processes.is_hosts:
            return True
        if occupant is None or pid in self._known.get(device_id, ()):
            return False
        own = self._own.setdefault((device_id, occupant.key), set())
        if pid not in own and len(own) < occupant.devices:
            own.add(pid)
        return pid in own

    def _is_display(self, process: DeviceProcess) -> bool:
        ignored = {name[:_KERNEL_NAME] for name in self._policy.ignored}
        small = (process.memory_bytes or 0) < self._policy.memory_bytes
        return process.name is not None and process.name[:_KERNEL_NAME] in ignored and small

    def _hidden_bytes(self, device: DeviceFacts, used: int | None) -> int:
        """Memory in use beyond that of the processes that are named; 0 when it is little enough for a display."""
        explained = sum(process.memory_bytes or 0 for process in device.processes)
        hidden = (used or 0) - explained
        return hidden if hidden >= self._policy.memory_bytes else 0


def _marked(device: DeviceFacts, others: tuple[DeviceProcess, ...], hidden_bytes: int) -> DeviceFacts:
    """Memory counts only when it was there at two listings: a trainer's is given back a moment after its end."""
    device = replace(device, processes=others)
    if device.health != OK or not (others or hidden_bytes):
        return device
    if others:
        reason = f"In use by {', '.join(map(str, others))}."
    else:
        reason = f"{hidden_bytes / (1 << 30):.1f} GiB of its memory are in use by nobody that this host can see."
    return replace(device, health=IN_USE_ELSEWHERE, reason=reason)
