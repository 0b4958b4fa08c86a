"""Users of their own for trainers: who gets which uid, and the work folder that goes there and comes back.

A uid goes to one attempt at a time (its ranks share it), and only when no process of it is left. What was given stands
in a file of the lock folder, so the next worker knows which processes and files are left-overs of ours: a uid that was
not given by this host's worker is a stranger's, whom nobody kills.

    <run_dir>/locks/user-20003      the names of the locks of the attempt that has it, one a line
"""

import contextlib
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from app.errors import TrainshedError
from workers.ownership import hand_over, remove_of, take_back
from workers.processes import kill_user, processes_of
from workers.user_memory import remove_memory_of

WAIT_MS: Final = 2_000
OPEN_TO_ALL: Final = (Path("/dev/shm"), Path("/tmp"), Path("/var/tmp"))  # noqa: S108 - cleaned, not used
"""Where a trainer may leave files outside of its work folder."""
_GIVEN: Final = "user-"


class NoUserFree(TrainshedError):
    """Each uid of the range belongs to a running attempt, or processes run as it that cannot be ended."""

    code = "launch_failed"

    def __init__(self, uids: range) -> None:
        super().__init__(
            f"No user of TRAINSHED_TRAINER_UIDS ({uids[0]}-{uids[-1]}) is free: each has a process. Give the worker a "
            "range that nothing else on this host uses, larger than its number of devices, for example 20000-20255."
        )


class TrainerUsers:
    """A pool of user ids; safe to use from several threads, by one process at a time.

    `folder` is where it keeps its notes; `shared` are folders that are cleaned of a trainer's files after its end.
    """

    def __init__(self, uids: range, folder: Path, shared: Sequence[Path] = OPEN_TO_ALL) -> None:
        self.uids = uids
        self._folder = folder
        self._shared = shared
        self._taken: set[int] = set()
        self._next = 0
        self._turn = threading.Lock()

    @property
    def work(self) -> Path:
        """The folder above all work folders, which every user may pass through."""
        return self._folder.parent / "work"

    def take(self, locks: Iterable[str] = ()) -> int:
        """A uid that nobody has and that no process runs as; `locks` are those of the attempt that gets it.

        The uid that was free for longest comes first.

        Raises:
            NoUserFree: there is none.
            OSError: it cannot be written down who has which; then nobody got one.
        """
        with self._turn:
            for offset in range(len(self.uids)):
                uid = self.uids[(self._next + offset) % len(self.uids)]
                if uid not in self._taken and self._is_clean(uid):
                    self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                    self._note(uid).write_text("".join(f"{name}\n" for name in locks), encoding="utf-8")
                    self._taken.add(uid)  # not before it is written down: a full disk must not use up the range
                    self._next = self.uids.index(uid) + 1
                    return uid
        raise NoUserFree(self.uids)

    def hand_over(self, work_dir: Path, uid: int) -> None:
        """Make a work folder and all in it the trainer's; this process can still read what the trainer leaves."""
        hand_over(work_dir, uid)

    def take_back(self, work_dir: Path, uid: int, *, kill: bool = False) -> None:
        """The trainer has ended: make its folder this process' own, remove its other files, and free the uid.

        `kill`: end what is left of it first. A uid with a process that cannot be killed is not given out again before
        that has gone; the folder comes back all the same, since such a process never runs user code again.
        """
        if kill:
            kill_user(uid, wait_ms=WAIT_MS)
        try:
            take_back(work_dir, uid)
        finally:
            self._remove_left_overs(uid)
            with self._turn:
                self._taken.discard(uid)
                if not processes_of(uid):
                    self._note(uid).unlink(missing_ok=True)

    def clean_up(self) -> list[int]:
        """End what an earlier worker left: processes and files of every uid that it had given; the pids."""
        killed = [pid for uid, _ in given(self._folder) for pid in kill_user(uid, wait_ms=WAIT_MS)]
        for uid, _ in given(self._folder):
            self._remove_left_overs(uid)
            if not processes_of(uid):
                self._note(uid).unlink(missing_ok=True)
        return killed

    def _remove_left_overs(self, uid: int) -> None:
        """What it left outside of its work folder, so that the next one with this user finds none of it."""
        for folder in self._shared:
            remove_of(uid, folder)
        remove_memory_of(uid)

    def _is_clean(self, uid: int) -> bool:
        if not processes_of(uid):
            return True
        if not self._note(uid).exists():
            return False  # not ours to kill
        kill_user(uid, wait_ms=WAIT_MS)
        return not processes_of(uid)

    def _note(self, uid: int) -> Path:
        return self._folder / f"{_GIVEN}{uid}"


def given(folder: Path) -> Iterator[tuple[int, list[str]]]:
    """Each uid that a worker has given and that was not proven to be free since, with the locks of its attempt."""
    own = os.geteuid()
    for path in sorted(folder.glob(f"{_GIVEN}*")):
        number = path.name.removeprefix(_GIVEN)
        if number.isdecimal() and int(number) not in (0, own):
            with contextlib.suppress(OSError):
                yield int(number), path.read_text(encoding="utf-8").splitlines()
