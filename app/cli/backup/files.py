"""Which stored files the rows name, and how they get into an archive and out of it."""

import os
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.artifacts.models import Artifact
from app.bundles.models import Bundle
from app.checkpoints.models import Checkpoint
from app.checkpoints.repository import CheckpointFacts
from app.cli.backup.archive import STORAGE, Writer
from app.datasets.models import Dataset
from app.jobs.models import Job
from app.jobs.states import FINAL
from app.storage import MissingObject, Storage

_UNFINISHED: Final = Job.state.not_in([state.value for state in FINAL])
_AT_ONCE: Final = 500
_BLOCK: Final = 1024 * 1024


@dataclass
class Copied:
    """How much went into the archive, and what the storage did not have (any more)."""

    files: int = 0
    size_bytes: int = 0
    missing: list[str] = field(default_factory=list)


def unfinished_attempts(session: Session) -> dict[str, int]:
    """The current attempt of each job that is not over."""
    return {row.id: row.attempt for row in session.execute(select(Job.id, Job.attempt).where(_UNFINISHED))}


def urgent_keys(session: Session) -> list[str]:
    """Keys of the checkpoints of jobs that are not over, the newest of each job first.

    A job that trains drops its older checkpoints all the time, so these must be copied before anything else.
    """
    query = (
        select(Checkpoint)
        .join(Job, Job.id == Checkpoint.job_id)
        .where(_UNFINISHED)
        .order_by(Checkpoint.created_at.desc(), Checkpoint.job_id)
        .execution_options(yield_per=_AT_ONCE)
    )
    return [key for row in session.scalars(query) for key in CheckpointFacts.of(row).keys]


def other_keys(session: Session) -> Iterator[str]:
    """All keys that rows name, those of `urgent_keys` too. A data set that is read in place has none."""
    for column in (Dataset.storage_key, Bundle.storage_key, Artifact.storage_key):
        yield from filter(None, session.scalars(select(column).execution_options(yield_per=_AT_ONCE)))
    for row in session.scalars(select(Checkpoint).execution_options(yield_per=_AT_ONCE)):
        yield from CheckpointFacts.of(row).keys


def copy_into(writer: Writer, storage: Storage, keys: Iterable[str], copied: Copied) -> None:
    """Add files to the archive, and to `copied` what came of it."""
    for key in keys:
        try:
            with storage.open(key) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(0)
                writer.add(STORAGE + key, file, size)
        except MissingObject:
            copied.missing.append(key)
        else:
            copied.files += 1
            copied.size_bytes += size


class Arrivals:
    """Files of an archive on their way into a storage that may have some of them already.

    A stored file never changes under its key, so one that is there with the same bytes stays. Where the bytes differ,
    one of the two is damaged, and only the end of the archive tells whether this one is whole: it waits for `replace`.
    """

    def __init__(self, storage: Storage, scratch: Path) -> None:
        self._storage = storage
        self._scratch = scratch
        self._waiting: dict[str, Path] = {}

    def take(self, key: str, stream: BinaryIO) -> int:
        """Store what the stream has to its end, if nothing is there; its size in bytes.

        Raises:
            InvalidKey: no stored file has such a name.
        """
        path = self._scratch / "arriving"
        try:
            with path.open("wb") as file:
                shutil.copyfileobj(stream, file, _BLOCK)
                size = file.tell()
            same = self._is_same(key, path)
            if same is None:
                self._storage.put(key, path)
            elif not same:
                waiting = self._scratch / f"waiting-{len(self._waiting)}"
                self._waiting[key] = path.replace(waiting)
        finally:
            path.unlink(missing_ok=True)
        return size

    def replace(self) -> None:
        """Put what waits in the place of what is there; to be called once the archive was seen to be whole."""
        for key, path in self._waiting.items():
            self._storage.put(key, path)
            path.unlink()

    def _is_same(self, key: str, path: Path) -> bool | None:
        """Whether the storage has these bytes under the key; None when it has nothing."""
        try:
            with self._storage.open(key) as there, path.open("rb") as here:
                if there.seek(0, os.SEEK_END) != here.seek(0, os.SEEK_END):
                    return False
                there.seek(0)
                here.seek(0)
                while block := here.read(_BLOCK):
                    if there.read(len(block)) != block:
                        return False
                return True
        except MissingObject:
            return None
