"""Who this host is: a name that stays the same from one start of the worker to the next."""

import socket
from pathlib import Path
from typing import Final

_MACHINE_ID: Final = Path("/etc/machine-id")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_LONGEST: Final = 100


def host_id(configured: str, machine_id: Path = _MACHINE_ID) -> str:
    """`TRAINSHED_HOST_ID`, else the machine id, else the host's name.

    A container may share an image's machine id with others, or have none: there the setting is needed.
    """
    identity = configured.strip() or _read(machine_id) or socket.gethostname()
    return identity[:_LONGEST]


def boot_id(path: Path = _BOOT_ID) -> str:
    """Changes with every boot of the machine; empty where the kernel does not tell."""
    return _read(path)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
