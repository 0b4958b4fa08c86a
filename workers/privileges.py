"""What a process may do, and giving it up for good: capabilities, users, and who may look into its memory.

Linux; standard library only: the launcher imports this.
"""

import ctypes
import os
import resource
from collections.abc import Iterable
from typing import Final

NEEDED: Final = {"CHOWN": 0, "KILL": 5, "SETGID": 6, "SETUID": 7}
"""The capabilities (linux/capability.h) that giving trainers users of their own takes, and no others."""

MOST_PROCESSES: Final = 16_384
"""Of one trainer's user, threads counted: without a bound, one that forks faster than it is killed never ends."""
OWN_FILES: Final = 0o007
"""The umask of a trainer with a user of its own: nothing for others; its group is the worker's."""

_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38
_PR_CAP_AMBIENT: Final = 47
_PR_CAP_AMBIENT_CLEAR_ALL: Final = 4
_CAPABILITY_VERSION_3: Final = 0x20080522


def effective(status: str = "/proc/self/status") -> int:
    """The capabilities that this process may use now, as bits."""
    with open(status, "rb") as file:  # noqa: PTH123 - pathlib costs the launcher 5 ms
        return next((int(line.split()[1], 16) for line in file if line.startswith(b"CapEff:")), 0)


def missing(names: Iterable[str] = tuple(NEEDED), bits: int | None = None) -> list[str]:
    """Which of these capabilities this process lacks."""
    held = effective() if bits is None else bits
    return [name for name in names if not held >> NEEDED[name] & 1]


def hide_memory() -> None:
    """Let no process of the same user read this one's memory and environment, or stop it with a debugger."""
    _prctl(_PR_SET_DUMPABLE, 0)


def drop_capabilities() -> None:
    """Give up all capabilities, and the ways to get any by another program. No way back."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    if ctypes.CDLL(None, use_errno=True).capset(header, (ctypes.c_uint32 * 6)()) != 0:
        raise OSError(ctypes.get_errno(), "capset failed")


def become(uid: int) -> None:
    """Turn this process into one of the user `uid`, of no group but its own, which may do nothing special.

    To be called with one thread. It clears the signal that the kernel sends when the parent ends: set that afterwards.

    Raises:
        OSError: it did not happen in full; the process must end.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _at_most(resource.RLIMIT_NPROC, MOST_PROCESSES)
    _at_most(resource.RLIMIT_FSIZE, _room())
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    drop_capabilities()
    if os.getresuid() != (uid,) * 3 or os.getresgid() != (uid,) * 3 or os.getgroups() or effective():
        raise PermissionError(f"could not become user {uid}")
    # The kernel hid this process' own /proc files when the user changed; only processes of this user see them now.
    _prctl(_PR_SET_DUMPABLE, 1)
    os.umask(OWN_FILES)


def _room() -> int:
    """The most that the disk of this folder, or the memory, could hold: a larger file would be one of holes."""
    disk = os.statvfs(".")
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(disk.f_bavail * disk.f_frsize, memory)


def _at_most(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), f"prctl {option} failed")
