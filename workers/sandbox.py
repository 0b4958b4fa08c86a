"""What a process does to itself before it runs code of a user's: no network, few processes, no rights, little else.

`enter` is called once, by the process that is to run the code, while it has one thread. What it does holds for good and
for everything that is started afterwards.

The network is shut off by a network namespace of its own, in which there is only the loopback device. Making one takes
either the right to (CAP_SYS_ADMIN) or a user namespace as well, which many hosts let everybody have; a container by
Docker's defaults lets nobody have either. There a filter of system calls is left, under which not even the loopback
device can be used. Linux; standard library only: the launcher imports this.
"""

import ctypes
import fcntl
import os
import resource
import socket
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from workers.call_filter import install, is_known, no_dangerous_calls
from workers.landlock import restrict
from workers.privileges import become, drop_capabilities, effective
from workers.process_counts import allowance, tasks_of

OWN_ACCOUNT_FILES: Final = 0o077
"""The umask of code that runs as its worker does. One with a user of its own keeps `privileges.OWN_FILES`."""
OOM_SCORE: Final = 500
"""Where memory runs out, the kernel takes code of a user's before the service."""
MOST_OPEN_FILES: Final = 65_536

_CLONE_NEWUSER: Final = 0x10000000
_CLONE_NEWNET: Final = 0x40000000
_CAP_SYS_ADMIN: Final = 21
_PR_SET_DUMPABLE: Final = 4
_SIOCGIFFLAGS: Final = 0x8913
_SIOCSIFFLAGS: Final = 0x8914
_IFF_UP: Final = 0x1

NAMESPACE: Final = "network namespace"
USER_NAMESPACE: Final = "user and network namespace"
FILTER: Final = "filter of system calls"


class Sandbox(NamedTuple):
    """What code of a user's may have. `needs_loopback`: it is of several processes that talk over 127.0.0.1.

    `max_processes` counts threads too, as the kernel does; `max_file_bytes` is for each file.
    """

    network: bool
    needs_loopback: bool
    max_file_bytes: int
    max_processes: int


class NoIsolation(Exception):
    """The host has no way to shut off the network for this code."""

    def __init__(self) -> None:
        super().__init__(
            "This host cannot shut off the network of a job that needs the loopback device: its kernel, or the "
            "container, allows neither network namespaces nor user namespaces. Use one process, or let the job ask for "
            "the network ('network': true, where TRAINSHED_CODE_NETWORK is on)."
        )


def enter(sandbox: Sandbox, uid: int | None = None) -> str | None:
    """Become the user `uid` (None: stay who we are), and give up all that `sandbox` does not allow.

    Gives how the network was shut off; None: it was not to be. It clears the signal that the kernel sends when the
    parent ends: set that afterwards.

    Raises:
        NoIsolation: the network cannot be shut off as it must be.
        OSError: something else did not happen in full; the process must end.
    """
    _show_memory()  # what is written to /proc/self below belongs to root otherwise
    how = None
    if not sandbox.network and effective() >> _CAP_SYS_ADMIN & 1 and _unshare(_CLONE_NEWNET):
        how = NAMESPACE
        _raise_loopback()
    _set_oom_score()
    if uid is not None:
        become(uid)
    if not sandbox.network and how is None:
        how = _shut_off(needs_loopback=sandbox.needs_loopback)
    # A namespace of users counts its own processes only; else those of our own user, which others may be of too.
    counted_alone = uid is not None or how == USER_NAMESPACE
    _limit(sandbox, already=0 if counted_alone else tasks_of(os.getuid()))
    drop_capabilities()
    restrict()
    if is_known():
        install(no_dangerous_calls(unix_sockets_only=how == FILTER))
    _show_memory()
    if uid is None:
        os.umask(OWN_ACCOUNT_FILES)
    return how


def _shut_off(*, needs_loopback: bool) -> str:
    # Half of a user namespace cannot be left again, so a child tries it first.
    if _succeeds(_make_user_namespace):
        _make_user_namespace()
        return USER_NAMESPACE
    if needs_loopback or not is_known():
        raise NoIsolation
    return FILTER


def _succeeds(attempt: Callable[[], None]) -> bool:
    """Whether a child of ours can do something that it will not come back from."""
    pid = os.fork()
    if pid == 0:
        try:
            attempt()
        except BaseException:  # noqa: BLE001 - whatever it was, it cannot be done here
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def _make_user_namespace() -> None:
    """A namespace of users in which there is one, who we are already, and one of networks."""
    uid, gid = os.getuid(), os.getgid()
    if not _unshare(_CLONE_NEWUSER | _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "unshare failed")
    _show_memory()
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")
    _raise_loopback()


def _show_memory() -> None:
    """A change of user or of its namespace hides `/proc/self` also from us; Landlock and the user keep others out."""
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)


def _unshare(flags: int) -> bool:
    return bool(ctypes.CDLL(None, use_errno=True).unshare(flags) == 0)


def _raise_loopback() -> None:
    """Bring up the one device that a new network namespace has."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        answer = fcntl.ioctl(probe, _SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0))
        flags = struct.unpack_from("16sH", answer)[1]
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | _IFF_UP))


def _limit(sandbox: Sandbox, *, already: int) -> None:
    _at_most(resource.RLIMIT_CORE, 0)
    _at_most(resource.RLIMIT_FSIZE, sandbox.max_file_bytes)
    _at_most(resource.RLIMIT_NOFILE, MOST_OPEN_FILES)
    _at_most(resource.RLIMIT_NPROC, already + allowance(sandbox.max_processes))


def _at_most(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def _set_oom_score() -> None:
    """Raise it only: lowering takes a right."""
    with open("/proc/self/oom_score_adj") as file:  # noqa: PTH123 - pathlib costs the launcher 5 ms
        present = int(file.read())
    if present < OOM_SCORE:
        _write("/proc/self/oom_score_adj", str(OOM_SCORE))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:  # noqa: PTH123 - as above
        file.write(text)
