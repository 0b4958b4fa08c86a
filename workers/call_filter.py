"""Filters of system calls (seccomp), as programs of classic BPF: which calls a process and its children may not make.

Linux on x86_64 and aarch64; standard library only: the launcher imports this.
"""

import ctypes
import errno
import os
import socket
import struct
from typing import Final, NamedTuple

Line = tuple[int, int, int, int]
"""Operation, lines to skip if true, if false, value."""

_PR_SET_SECCOMP: Final = 22
_SECCOMP_MODE_FILTER: Final = 2
_X32_BIT: Final = 0x40000000
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW: Final = 0x7FFF0000
_ERROR: Final = 0x00050000
_REFUSE: Final = _ERROR | errno.EPERM
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16


class _Machine(NamedTuple):
    """The kernel's numbers of an architecture: its own (linux/audit.h), and of calls (asm/unistd.h)."""

    audit: int
    column: int


_MACHINES: Final = {"x86_64": _Machine(0xC000003E, 0), "aarch64": _Machine(0xC00000B7, 1)}
_SOCKET: Final = (41, 198)
_CLONE: Final = (56, 220)
_CLONE3: Final = (435, 435)
_IO_URING_SETUP: Final = (425, 425)  # a ring could open sockets past the filter

NEW_NAMESPACES: Final = 0x7E020080
"""clone(2) flags of new namespaces: CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET, and -TIME."""

DANGEROUS: Final = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "unshare": (272, 97),
    "setns": (308, 268),
    "open_by_handle_at": (304, 265),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "acct": (163, 89),
    "io_uring_setup": _IO_URING_SETUP,
}
"""Calls that no framework needs and that holes of the kernel were reached by, on x86_64 and aarch64."""


def is_known() -> bool:
    """Whether filters can be written for this machine."""
    return os.uname().machine in _MACHINES


def no_network() -> list[Line]:
    """Sockets of this machine alone: socket() makes none but AF_UNIX."""
    column = _machine().column
    return [*_refused(_IO_URING_SETUP[column]), *_unix_sockets(column)]


def no_dangerous_calls(*, unix_sockets_only: bool) -> list[Line]:
    """None of `DANGEROUS`, and no new namespaces, which would give a process rights inside of them."""
    column = _machine().column
    program = [line for numbers in DANGEROUS.values() for line in _refused(numbers[column])]
    # The flags of clone3 lie in memory that a filter cannot read; told that there is none, libraries take clone.
    program += _refused(_CLONE3[column], _ERROR | errno.ENOSYS)
    program += [
        (_JUMP_EQUAL, 0, 4, _CLONE[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_JUMP_SET, 0, 1, NEW_NAMESPACES),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
    return program + (_unix_sockets(column) if unix_sockets_only else [])


def install(rules: list[Line]) -> bool:
    """Put a filter on this process for good; False when the kernel takes none.

    To be called by a process that can get no new privileges (`workers.privileges.drop_capabilities`), with one thread.
    """
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT),
        (_JUMP_EQUAL, 1, 0, _machine().audit),
        (_RETURN, 0, 0, _REFUSE),  # a call of another architecture
        (_LOAD, 0, 0, _NUMBER_AT),
        (_JUMP_GREATER_EQUAL, 0, 1, _X32_BIT),
        (_RETURN, 0, 0, _REFUSE),
        *rules,
        (_RETURN, 0, 0, _ALLOW),
    ]
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code, len(code))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(buffer))
    library = ctypes.CDLL(None, use_errno=True)
    return bool(library.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0) == 0)


def _machine() -> _Machine:
    return _MACHINES[os.uname().machine]


def _refused(number: int, answer: int = _REFUSE) -> list[Line]:
    return [(_JUMP_EQUAL, 0, 1, number), (_RETURN, 0, 0, answer)]


def _unix_sockets(column: int) -> list[Line]:
    return [
        (_JUMP_EQUAL, 0, 4, _SOCKET[column]),
        (_LOAD, 0, 0, _FIRST_ARGUMENT_AT),
        (_JUMP_EQUAL, 1, 0, int(socket.AF_UNIX)),
        (_RETURN, 0, 0, _REFUSE),
        (_RETURN, 0, 0, _ALLOW),
    ]
