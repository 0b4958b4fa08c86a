"""Takes a trainer's checkpoints away, from a thread of its own: neither the trainer nor its reports wait for a disk.

    announced -> verified -> files in the storage -> row and journal entry, in one fenced transaction -> folder removed

When storing is slower than the trainer makes them, only the newest and the best one wait, and what was passed over is
removed. A storage that fails costs a notice, never the training; the newest is tried again until there is a newer one.
"""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from app.broker import CHANNEL_JOURNAL, Bell
from app.checkpoints.repository import CheckpointFacts, StoredFile, prefixes
from app.db import Database, DatabaseDown
from app.errors import TrainshedError
from app.jobs.checkpointing import record_checkpoint
from app.series.nonfinite import to_json
from app.storage import Storage
from app.storage.keys import checkpoint_prefix
from workers.checkpoints import MANIFEST_NAME, UnreadableCheckpoint, verify
from workers.fault_points import point
from workers.orders import Orders
from workers.outcome import reason_of
from workers.protocol import Checkpoint
from workers.recorder import Fenced
from workers.stopping import StopReason
from workers.taken_folders import TakenFolders
from workers.uploads import digest_of

log = structlog.get_logger("worker")

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
"""Ours have four files and less than 1 KiB; a trainer may have written another one."""
_LAST_TRIES: Final = 4
"""How often a storage that fails is asked once the trainer has ended: the job's end does not wait for it for ever."""


@dataclass(frozen=True)
class Shelf:
    """Where the checkpoints of one attempt go. `keep_periodic`: the job asked for one every so many epochs."""

    database: Database
    bell: Bell
    storage: Storage
    key: tuple[str, int]
    work_dir: Path
    keep_periodic: bool


class CheckpointStore:
    """`offer` is called from the thread that watches the trainer, `finish` when nothing of the trainer is left.

    `say` takes the code and the sentence of a notice; `on_fenced` is called once, from the store's thread. `before` is
    called before each row is written: what was reported up to a checkpoint must be in the database before it, or a
    training that goes on from there would leave a gap in its series. It may raise Fenced and DatabaseDown.
    """

    def __init__(
        self,
        shelf: Shelf,
        orders: Orders,
        *,
        say: Callable[[str, str], None],
        on_fenced: Callable[[], None],
        before: Callable[[], None] = lambda: None,
    ) -> None:
        self._shelf = shelf
        self._orders = orders
        self._say = say
        self._on_fenced = on_fenced
        self._before = before
        self._changed = threading.Condition()
        self._waiting: list[Checkpoint] = []
        self._passed_over: list[Checkpoint] = []
        self._finishing = False
        self._over = False
        self._put: tuple[Checkpoint, CheckpointFacts] | None = None
        self._taken = TakenFolders(shelf.work_dir)
        self._steps: Counter[int] = Counter()
        self._failures = 0
        self._thread: threading.Thread | None = None

    @property
    def has_work(self) -> bool:
        with self._changed:
            return bool(self._waiting) and not self._over

    def offer(self, checkpoint: Checkpoint) -> None:
        """Take note of a checkpoint that is complete; returns at once."""
        with self._changed:
            if self._over or self._finishing:
                return
            kept = _worth_waiting([*self._waiting, checkpoint])
            self._passed_over += [waiting for waiting in self._waiting if all(waiting is not one for one in kept)]
            self._waiting = kept
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"checkpoints-{self._shelf.key[0]}", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def finish(self) -> None:
        """Store what waits; blocks until it is stored, given up, found to be stale, or the attempt is abandoned."""
        with self._changed:
            self._finishing = True
            self._failures = 0
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._taken.close()

    def _run(self) -> None:
        while (checkpoint := self._next()) is not None:
            pause_s = self._attempt(checkpoint)
            if pause_s:
                self._pause(pause_s)

    def _next(self) -> Checkpoint | None:
        """The one to store now, the oldest that waits; None when there is nothing more to do."""
        with self._changed:
            while not (self._waiting or self._finishing):
                self._changed.wait()
            if self._orders.abandoned or self._orders.stop is StopReason.FENCED:
                self._over = True
            passed_over, self._passed_over = self._passed_over, []
            found = None if self._over or not self._waiting else self._waiting[0]
        for checkpoint in passed_over:
            self._pass_over(checkpoint)
        if self._put is not None and self._put[0] is not found:
            self._discard_put()
        return found

    def _attempt(self, checkpoint: Checkpoint) -> float:
        """Try to store it; how long to wait before the next try, 0 when it is done with."""
        try:
            unnamed = self._record(self._stored(checkpoint))
        except Fenced:
            self._give_way()
            return 0.0
        except DatabaseDown:
            return self._again_in_s()
        except UnreadableCheckpoint as error:
            self._say("checkpoint_not_stored", f"The checkpoint of step {checkpoint.step} is broken: {error.reason}")
        except OSError as error:
            return self._storage_failed(checkpoint, error)
        except Exception:
            log.exception("checkpoint_refused", job_id=self._shelf.key[0], step=checkpoint.step)
            if self._failures < _LAST_TRIES:
                return self._again_in_s()
            self._say("checkpoint_not_stored", f"The checkpoint of step {checkpoint.step} could not be recorded.")
        else:
            self._put = None
            self._delete(unnamed)
            self._shelf.bell.ring(CHANNEL_JOURNAL, self._shelf.key[0])
        self._done_with(checkpoint)
        return 0.0

    def _stored(self, checkpoint: Checkpoint) -> CheckpointFacts:
        """Put the files into the storage, once, whatever then becomes of the row."""
        if self._put is not None and self._put[0] is checkpoint:
            return self._put[1]
        point("checkpoint.before_store")
        job_id, attempt = self._shelf.key
        folder = self._taken.folder_of(checkpoint)
        files = _files_of(folder)
        prefix = checkpoint_prefix(job_id, attempt, checkpoint.step, self._steps[checkpoint.step])
        facts = CheckpointFacts(
            job_id=job_id,
            attempt=attempt,
            step=checkpoint.step,
            epoch=checkpoint.epoch,
            reason=checkpoint.reason,
            best=checkpoint.best,
            metrics={name: to_json(value) for name, value in checkpoint.metrics.items()},
            files=tuple(files),
            storage_prefix=prefix,
        )
        self._put_files(facts, folder)
        self._steps[checkpoint.step] += 1
        self._put = (checkpoint, facts)
        point("checkpoint.stored")
        return facts

    def _put_files(self, facts: CheckpointFacts, folder: Path) -> None:
        """All of them or none: a part of a checkpoint would only fill a storage that is full already."""
        try:
            for file, key in zip(facts.files, facts.keys, strict=True):
                self._shelf.storage.put(key, folder / file.name)
        except OSError:
            self._delete(facts.keys)
            raise

    def _record(self, facts: CheckpointFacts) -> list[str]:
        self._before()
        database = self._shelf.database
        with database.write() as session:
            unnamed = record_checkpoint(session, facts, database.now(session), keep_periodic=self._shelf.keep_periodic)
            if unnamed is None:
                raise Fenced
        point("checkpoint.recorded")
        return unnamed

    def _storage_failed(self, checkpoint: Checkpoint, error: OSError) -> float:
        log.warning("checkpoint_not_stored", job_id=self._shelf.key[0], step=checkpoint.step, error=str(error))
        given_up = self._finishing and self._failures + 1 >= _LAST_TRIES
        if given_up or not self._failures:
            outlook = "It is given up." if given_up else "It is tried again."
            sentence = f"The checkpoint of step {checkpoint.step} could not be stored: {reason_of(error)}. {outlook}"
            self._say("checkpoint_not_stored", sentence)
        if not given_up:
            return self._again_in_s()
        self._done_with(checkpoint)
        return 0.0

    def _again_in_s(self) -> float:
        self._failures += 1
        return min(_FIRST_PAUSE_S * 2.0 ** (self._failures - 1), _LONGEST_PAUSE_S)

    def _pause(self, pause_s: float) -> None:
        """Wait, but not through the end of the attempt: then what is left is to be tried at once."""
        if self._finishing:
            self._orders.wait_abandoned(pause_s)
            return
        with self._changed:
            self._changed.wait_for(lambda: self._finishing, pause_s)

    def _done_with(self, checkpoint: Checkpoint) -> None:
        self._failures = 0
        with self._changed:
            self._waiting = [waiting for waiting in self._waiting if waiting is not checkpoint]
        self._taken.remove(checkpoint)

    def _give_way(self) -> None:
        """The attempt is not the job's any more, and neither is what it stored."""
        with self._changed:
            self._over = True
        self._discard_put()
        self._on_fenced()

    def _pass_over(self, checkpoint: Checkpoint) -> None:
        self._taken.remove(checkpoint)
        if self._shelf.keep_periodic and checkpoint.reason == "periodic":
            sentence = f"The checkpoint of step {checkpoint.step} was not stored: newer ones came faster than that."
            self._say("checkpoint_passed_over", sentence)

    def _discard_put(self) -> None:
        """Remove stored files that no row names. One whose commit was not answered may have a row.

        Where the database does not tell, they stay, and the next attempt removes them (workers.beginning).
        """
        if self._put is None:
            return
        facts, self._put = self._put[1], None
        try:
            with self._shelf.database.read() as session:
                named = prefixes(session, facts.job_id)
        except TrainshedError:
            return
        if facts.storage_prefix not in named:
            self._delete(facts.keys)

    def _delete(self, keys: list[str]) -> None:
        for key in keys:
            try:
                self._shelf.storage.delete(key)
            except (OSError, TrainshedError):
                log.warning("file_not_removed", key=key, exc_info=True)


def _worth_waiting(checkpoints: list[Checkpoint]) -> list[Checkpoint]:
    """The newest, and before it the newest that is the best, if that is another one."""
    newest = checkpoints[-1]
    best = next((checkpoint for checkpoint in reversed(checkpoints) if checkpoint.best), newest)
    return [newest] if best is newest else [best, newest]


def _files_of(folder: Path) -> list[StoredFile]:
    """The files that a complete checkpoint consists of, the manifest last.

    Raises:
        UnreadableCheckpoint: it is not complete, or its manifest is none of ours: that one is read as a whole.
    """
    path = folder / MANIFEST_NAME
    manifest = verify(folder)
    files = [StoredFile(facts.name, facts.size_bytes, facts.sha256) for facts in manifest.files]
    return [*files, StoredFile(MANIFEST_NAME, path.stat().st_size, digest_of(path))]
