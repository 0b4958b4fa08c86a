"""Make a backup, also of a service that runs: rows of one moment, and the files that they name."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

from sqlalchemy import or_

from app import __version__
from app.checkpoints.models import Checkpoint
from app.cli.backup.archive import FORMAT, LATE, MANIFEST, STORAGE, TABLES, Writer
from app.cli.backup.errors import UNFINISHED, BackupFailed, NotAFile
from app.cli.backup.files import Copied, copy_into, other_keys, unfinished_attempts, urgent_keys
from app.cli.backup.rows import tables, write_table
from app.clock import to_rfc3339
from app.db import Base, Database
from app.migrations_runner import newest_revision
from app.storage import Storage

_LOOKS: Final = 3


@dataclass
class Made:
    """What is in a backup: rows by table, files of the storage, and keys of files that were not there."""

    schema: str
    rows: dict[str, int] = field(default_factory=dict)
    copied: Copied = field(default_factory=Copied)


def make_backup(database: Database, storage: Storage | None, stream: BinaryIO, scratch: Path, now: datetime) -> Made:
    """Write a backup to `stream`; `storage` None leaves files out. The schema must be the newest.

    The rows wait in `scratch` until the files are copied. Of a job that trains meanwhile, the checkpoints of that
    moment may be gone before they are copied: then newer ones are taken, with their rows.
    """
    made = Made(newest_revision())
    writer = Writer(stream)
    with database.snapshot() as session:
        for table in tables():
            made.rows[str(table.name)] = write_table(session, table, scratch / table.name)
        urgent = urgent_keys(session)
        attempts = unfinished_attempts(session)
        keys = list(dict.fromkeys([*urgent, *other_keys(session)]))
    writer.add_document(
        MANIFEST,
        {
            "format": FORMAT,
            "schema": made.schema,
            "version": __version__,
            "created_at": to_rfc3339(now),
            "storage": storage is not None,
            "rows": made.rows,
        },
    )
    late: list[Path] = []
    if storage is not None:
        copy_into(writer, storage, keys[: len(urgent)], made.copied)
        late = _take_newer(database, storage, writer, scratch, made.copied, attempts)
        copy_into(writer, storage, keys[len(urgent) :], made.copied)
    for name in made.rows:
        _add(writer, f"{TABLES}{name}.jsonl", scratch / name)
    for path in late:
        _add(writer, f"{LATE}{path.name}.jsonl", path)
    writer.finish(missing=made.copied.missing)
    return made


def _take_newer(
    database: Database, storage: Storage, writer: Writer, scratch: Path, copied: Copied, attempts: dict[str, int]
) -> list[Path]:
    """Look again at jobs of whose checkpoints one was gone, until nothing was; the files with their newer rows."""
    late: list[Path] = []
    gone = _jobs_of(copied.missing)
    table = Base.metadata.tables[Checkpoint.__tablename__]
    taken: set[str] = set(copied.missing)
    for look in range(_LOOKS):
        # A later attempt's checkpoints are no help: the restored job has not got that far.
        wanted = [
            (Checkpoint.job_id == job_id) & (Checkpoint.attempt <= attempts[job_id])
            for job_id in sorted(gone & attempts.keys())
        ]
        if not wanted:
            break
        with database.snapshot() as session:
            late.append(scratch / f"checkpoints-{look}")
            write_table(session, table, late[-1], or_(*wanted))
            keys = [key for key in urgent_keys(session) if key.split("/")[1] in gone and key not in taken]
        fresh = Copied()
        copy_into(writer, storage, [key for key in keys if not writer.has(STORAGE + key)], fresh)
        copied.files += fresh.files
        copied.size_bytes += fresh.size_bytes
        copied.missing += fresh.missing
        taken.update(fresh.missing)
        gone = _jobs_of(fresh.missing)
    return late


def _jobs_of(keys: list[str]) -> set[str]:
    """The jobs whose checkpoints these are."""
    return {key.split("/")[1] for key in keys if key.startswith("checkpoints/")}


def _add(writer: Writer, name: str, path: Path) -> None:
    with path.open("rb") as file:
        writer.add(name, file, path.stat().st_size)
    path.unlink()


@contextmanager
def new_file(target: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A file that appears at `target` when the block ended well, for this user alone, and a folder for what waits.

    Raises:
        NotAFile: there is something else, such as a folder or a device.
        BackupFailed: it cannot be written there.
    """
    target = target.resolve()
    if target.exists() and not target.is_file():
        raise NotAFile(str(target))
    try:
        # Beside the target: where a backup has room, what waits for it has room too.
        with tempfile.TemporaryDirectory(prefix=UNFINISHED, dir=target.parent) as folder:
            unfinished = Path(folder) / "unfinished.tar"
            with unfinished.open("xb") as file:
                unfinished.chmod(0o600)
                yield file, Path(folder)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(target)
    except OSError as error:
        raise BackupFailed(str(target), error) from error
