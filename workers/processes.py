"""Who a process is: what `/proc` says about it, and killing exactly the processes that were meant.

A pid alone is only a hint, it may have been given to another process since. A pid with its start time is an identity,
and a descriptor of the process (pidfd) is one that cannot be reused at all.

Standard library only: the launcher imports this.
"""

import os
import select
import signal
import time
from collections.abc import Iterator
from typing import Final, NamedTuple

LAUNCH_TAG: Final = "TRAINSHED_LAUNCH"
"""The environment variable whose value is unique to one launch."""
_STEP_S: Final = 0.002
FREEZE_S: Final = 10.0
"""How long processes that fork without end are chased; they take most of the machine's time meanwhile."""


class ProcessStat(NamedTuple):
    """A few fields of `/proc/<pid>/stat`; `start_time` is in clock ticks since boot."""

    pid: int
    state: str
    ppid: int
    pgid: int
    sid: int
    start_time: int


def read_stat(pid: int) -> ProcessStat | None:
    """Read a process' facts, or None when there is no such process. A zombie is still there, in state Z."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib would cost the launcher 5 ms of imports
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The name, in parentheses, may itself contain spaces and parentheses: count from the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return ProcessStat(pid, fields[0].decode(), int(fields[1]), int(fields[2]), int(fields[3]), int(fields[19]))


def all_pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - as above


def open_process(pid: int, start_time: int) -> int | None:
    """Give a pidfd of exactly the process that began at `start_time`, or None when it is gone."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    stat = read_stat(pid)
    if stat is None or stat.start_time != start_time:
        os.close(descriptor)
        return None
    return descriptor


def kill_process(pid: int, start_time: int, *, wait_ms: int = 0) -> bool:
    """SIGKILL one process, frozen or not; True when it was there to be killed. Waits up to `wait_ms` for its end."""
    descriptor = open_process(pid, start_time)
    if descriptor is None:
        return False
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        await_end(descriptor, wait_ms)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(descriptor)
    return True


def await_end(descriptor: int, wait_ms: int) -> bool:
    """Wait until the process of a pidfd has ended (a zombie has); True when it did within `wait_ms`."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(wait_ms))


def launch_of(pid: int) -> str | None:
    """Read which launch a process belongs to: the tag in its environment, which every descendant inherits."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:  # noqa: PTH123 - as above
            variables = file.read().split(b"\0")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    prefix = f"{LAUNCH_TAG}=".encode()
    return next((line[len(prefix) :].decode(errors="replace") for line in variables if line.startswith(prefix)), None)


def kill_launch(launch: str, *, wait_ms: int = 0) -> list[int]:
    """SIGKILL every process of a launch, wherever it went: other groups and sessions, spawned ones, frozen ones."""
    stats = [stat for pid in all_pids() if launch_of(pid) == launch and (stat := read_stat(pid)) is not None]
    return [stat.pid for stat in stats if kill_process(stat.pid, stat.start_time, wait_ms=wait_ms)]


def read_status(pid: int) -> dict[bytes, bytes] | None:
    """The fields of `/proc/<pid>/status`, which everybody may read; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123 - as above
            lines = file.read().splitlines()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return dict(line.split(b":\t", 1) for line in lines if b":\t" in line)


def processes_of(uid: int) -> list[int]:
    """The processes in which anything runs as this user; who has ended, and only waits to be reaped, is not among them.

    Everybody may read who a process is, where reading its environment or its descriptors takes the same user.
    """
    return [pid for pid in all_pids() if _runs_as(pid, uid)]


def kill_user(uid: int, *, wait_ms: int = 0) -> list[int]:
    """SIGKILL every process of a trainer's user, and then wait up to `wait_ms` for their end; the pids.

    Raises:
        ValueError: for root and for this process' own user, whose processes are never all meant.
    """
    if uid in (0, os.geteuid()):
        raise ValueError(f"the processes of user {uid} must not be killed")
    give_up: float | None = None
    killed: set[int] = set()
    while found := _freeze(uid):
        for pid in found:
            _signal_user(pid, uid, signal.SIGKILL)
        killed |= found
        give_up = give_up or time.monotonic() + wait_ms / 1000
        if time.monotonic() >= give_up:
            break
        time.sleep(_STEP_S)
    return sorted(killed)


def _freeze(uid: int) -> set[int]:
    """Stop every process of the user, until no new one appears; one that forks faster than it is killed would win.

    Who is stopped keeps its place among the processes that the user may have, so those that fork run out of places.
    """
    give_up = time.monotonic() + FREEZE_S
    looked_at: set[int] = set()
    frozen: set[int] = set()
    while time.monotonic() < give_up:
        new = [pid for pid in all_pids() if pid not in looked_at]
        looked_at.update(new)
        ours = [pid for pid in new if _runs_as(pid, uid)]
        if not ours:
            break
        for pid in ours:
            _signal_user(pid, uid, signal.SIGSTOP)
        frozen.update(ours)
    return frozen


def _signal_user(pid: int, uid: int, signum: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except (ProcessLookupError, OSError):
        return
    try:
        if _runs_as(pid, uid):  # it may have ended, and its number be another's, before it was opened
            signal.pidfd_send_signal(descriptor, signum)
    except (ProcessLookupError, PermissionError):
        pass
    finally:
        os.close(descriptor)


def _runs_as(pid: int, uid: int) -> bool:
    number = str(uid).encode()
    try:
        with open(f"/proc/{pid}/status", "rb") as file:  # noqa: PTH123 - as above
            text = file.read()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    if number not in text:  # most are somebody else's
        return False
    lines = dict(line.split(b":\t", 1) for line in text.splitlines() if b":\t" in line)
    if number not in lines.get(b"Uid", b"").split():
        return False
    # A process whose first thread has left is called a zombie, although others of its threads still run.
    return lines.get(b"State", b"")[:1] not in (b"Z", b"X") or int(lines.get(b"Threads", b"1")) > 1
