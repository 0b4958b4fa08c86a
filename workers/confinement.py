"""What a process does to itself before it reads a model: limits on memory, no network, and no capability.

For processes that make or answer something from a finished model. They need no network, so they cannot have one: a
library that opens a socket gets "operation not permitted". Linux; standard library only.
"""

import ctypes
import errno
import os
import platform
import resource
import signal
import socket
import struct
import sys
from typing import Final

from workers.privileges import drop_capabilities

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2

# The kernel's numbers of each architecture: its own (linux/audit.h), and that of socket() (asm/unistd.h).
_ARCHITECTURES: Final = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_IO_URING_SETUP: Final = 425  # the same everywhere; a ring could open sockets past the filter
_X32_BIT: Final = 0x40000000

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW: Final = 0x7FFF0000
_REFUSE: Final = 0x00050000 | errno.EPERM
_NUMBER_AT, _ARCHITECTURE_AT, _FAMILY_AT = 0, 4, 16


def confine(memory_bytes: int) -> bool:
    """Confine this process for good; to be called first, with one thread. True when the network is shut off too.

    `memory_bytes` limits what it may allocate (data, not mapped libraries); then Python raises MemoryError.
    """
    _limit(resource.RLIMIT_DATA, memory_bytes)
    _limit(resource.RLIMIT_CORE, 0)
    drop_capabilities()
    return _shut_off_network(ctypes.CDLL(None, use_errno=True))


def end_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends, in the process `parent`.

    Only where that thread waits for this process: the kernel's signal follows the thread, not the process.
    """
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("The process that asked for this has ended.")


def _limit(kind: int, most: int) -> None:
    _, hard = resource.getrlimit(kind)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))


def _shut_off_network(library: ctypes.CDLL) -> bool:
    """Install a system call filter under which socket() makes AF_UNIX sockets alone; False where there is none.

    The kernel takes one from a process that can get no new privileges (`drop_capabilities`).
    """
    if platform.machine() not in _ARCHITECTURES:
        return False
    program = b"".join(struct.pack("HBBI", *line) for line in _filter(*_ARCHITECTURES[platform.machine()]))
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    return bool(library.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0) == 0)


def _filter(architecture: int, socket_call: int) -> list[tuple[int, int, int, int]]:
    """Give the program of classic BPF; each line is (operation, lines to skip if true, if false, value)."""
    return [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_EQUAL, 0, 7, architecture),  # a call of another architecture: refuse
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_GREATER_EQUAL, 5, 0, _X32_BIT),
        (_JUMP_EQUAL, 4, 0, _IO_URING_SETUP),
        (_JUMP_EQUAL, 0, 2, socket_call),
        (_LOAD, 0, 0, _FAMILY_AT),
        (_JUMP_EQUAL, 0, 1, int(socket.AF_UNIX)),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    ]
