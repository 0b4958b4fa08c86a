"""The proof that no process of an attempt is left: its locks are free. A clock proves nothing, a missing pid little."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from workers.launch import sweep
from workers.locks import close_all, take_all
from workers.processes import processes_of
from workers.trainer_user import given

PROOF_S: Final = 60.0
"""A process that SIGKILL does not end within this hangs in a driver."""
_STEP_S: Final = 0.05


def locks_free(lock_dir: Path, names: Sequence[str]) -> bool:
    """Whether nobody holds any of the locks now.

    A trainer with a user of its own can unlock what it inherited: of such a user no process may be left either.
    """
    lock_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptors, held = take_all([str(lock_dir / name) for name in names])
    close_all(descriptors)
    users = [uid for uid, locks in given(lock_dir) if not set(names).isdisjoint(locks)]
    return held is None and not any(processes_of(uid) for uid in users)


def free_locks(
    lock_dir: Path,
    names: Sequence[str],
    *,
    keep_on: Callable[[], bool],
    proof_s: float = PROOF_S,
    monotonic: Callable[[], float] = time.monotonic,
) -> bool:
    """Kill whoever holds the locks until they are free; False when that takes longer than `proof_s`.

    Only while `keep_on` says that the locks belong to the caller: a holder may otherwise be the next, rightful owner.
    """
    give_up = monotonic() + proof_s
    while not locks_free(lock_dir, names):
        if not keep_on() or monotonic() >= give_up:
            return False
        sweep(lock_dir, names)
        time.sleep(_STEP_S)
    return True
