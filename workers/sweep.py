"""Find who holds a lock, through `/proc`, and kill it: what a worker does before its first attempt.

A trainer whose worker, launcher and all died while it was frozen holds its locks for ever. The kernel says so in
`/proc/<pid>/fdinfo`, also for locks that were inherited, where `/proc/locks` only names who took it once.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from workers.processes import all_pids, kill_launch, kill_process, kill_user, launch_of, read_stat
from workers.trainer_user import given

WAIT_MS = 2_000


def holders(lock_dir: Path, names: Iterable[str]) -> list[int]:
    """List the processes that hold one of the lock files of these names, this process not among them.

    Processes of other users, whose descriptors cannot be read, are not found: see `sweep`.
    """
    files = {(stat.st_dev, stat.st_ino) for name in names if (stat := _stat(lock_dir / name)) is not None}
    if not files:
        return []
    return [pid for pid in sorted(all_pids()) if pid != os.getpid() and _holds(pid, files)]


def sweep(lock_dir: Path, names: Iterable[str]) -> list[int]:
    """SIGKILL the holders of these locks, frozen ones too, with all else of their launches; the pids that were killed.

    Only for locks that belong to the caller: whoever holds one is taken for a left-over. A trainer with a user of its
    own is found by what was noted of that user. Returns when they are gone (a lock is free once its last holder has
    ended), or after two seconds for each that cannot be killed.
    """
    names = list(names)
    killed = _kill_users(lock_dir, set(names))
    while found := [pid for pid in holders(lock_dir, names) if pid not in killed]:
        new = {pid for holder in found for pid in _kill_holder(holder)}
        if not new - killed:
            break
        killed |= new
    return sorted(killed)


def _kill_users(lock_dir: Path, names: set[str]) -> set[int]:
    users = [uid for uid, locks in given(lock_dir) if not names.isdisjoint(locks)]
    return {pid for uid in users for pid in kill_user(uid, wait_ms=WAIT_MS)}


def _kill_holder(pid: int) -> list[int]:
    stat, launch = read_stat(pid), launch_of(pid)
    if stat is None:
        return []
    killed = [pid] if kill_process(pid, stat.start_time, wait_ms=WAIT_MS) else []
    # Loaders that were spawned hold no lock, and a frozen launcher none either, but they carry the tag.
    return killed + (kill_launch(launch, wait_ms=WAIT_MS) if launch is not None else [])


def _holds(pid: int, files: set[tuple[int, int]]) -> bool:
    try:
        descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return False
    return any(_is_locked(descriptor, files) for descriptor in descriptors)


def _is_locked(descriptor: Path, files: set[tuple[int, int]]) -> bool:
    stat = _stat(descriptor)
    if stat is None or (stat.st_dev, stat.st_ino) not in files:
        return False
    try:
        return "FLOCK" in (descriptor.parent.with_name("fdinfo") / descriptor.name).read_text()
    except OSError:
        return False


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
