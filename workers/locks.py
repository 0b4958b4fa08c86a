"""Kernel locks: one file for each job and each device, in a directory that everything on the host shares.

A lock belongs to the open file description: it lives until the last inherited copy is closed, whoever dies first.
So the holder of a device is a fact of the kernel, not of a clock. Nobody ever calls LOCK_UN (it would free the lock
under the trainer that inherited it) and nobody removes a file (two processes would then lock two files of one name).

Standard library only: the launcher imports this.
"""

import fcntl
import os
from collections.abc import Iterable, Sequence

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


def lock_names(job_id: str, device_ids: Iterable[str]) -> list[str]:
    """Name the lock files of an attempt in the order in which they are taken: the job, then the devices sorted."""
    return [f"job-{_quote(job_id)}.lock", *(f"dev-{_quote(device)}.lock" for device in sorted(device_ids))]


def _quote(identity: str) -> str:
    # Ids are opaque, and old MIG ids contain slashes: MIG-GPU-<uuid>/1/0.
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02x}" for byte in identity.encode())


def take(path: str) -> int | None:
    """Lock a file and give its descriptor (close-on-exec), or None when somebody holds it.

    The file is opened for reading: another user's file can be locked too. It is created only when missing, since
    Linux refuses O_CREAT on another user's file in a sticky directory (fs.protected_regular).
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        descriptor = os.open(path, flags | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def take_all(paths: Sequence[str]) -> tuple[list[int], str | None]:
    """Lock all files in the order given: their descriptors, or no descriptor and the first path that is held."""
    taken: list[int] = []
    for path in paths:
        descriptor = take(path)
        if descriptor is None:
            close_all(taken)
            return [], path
        taken.append(descriptor)
    return taken, None


def close_all(descriptors: Iterable[int]) -> None:
    for descriptor in descriptors:
        os.close(descriptor)
