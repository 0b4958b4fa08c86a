"""`trainshed restore`: bring a backup back into a database and a storage, which may be of another kind."""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from app.cli.backup.errors import BackupFailed
from app.cli.backup.restoring import Restored, Target, restore
from app.cli.figures import size
from app.cli.processes.direct import run_program
from app.clock import SystemClock
from app.db import Database
from app.settings import load_settings
from app.storage import configured_storage

program = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@program.command()
def bring_back(
    file: Annotated[str, typer.Argument(metavar="FILE.tar", help="A backup; - is standard input.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Delete all jobs, data and keys that the database has.")
    ] = False,
    without_storage: Annotated[
        bool, typer.Option("--without-storage", help="Rows only: their files are in the storage already.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Restore a backup into the database and the storage of the settings; all of it or nothing.

    The database must have no jobs, data sets or holds. An older backup is migrated. Jobs that ran when it was made wait
    again and go on from their checkpoints; the keys are those of the backup.
    """
    settings = load_settings()
    storage = None if without_storage else configured_storage(settings)
    database = Database(settings.effective_database_url, synchronous=settings.sqlite_synchronous)
    try:
        with _source(file) as stream, tempfile.TemporaryDirectory(prefix="trainshed-") as folder:
            target = Target(database, storage, Path(folder), replace)
            restored = restore(stream, None if file == "-" else Path(file), target, SystemClock().now())
    except OSError as error:
        raise BackupFailed(file, error) from error
    finally:
        database.dispose()
    for key in restored.settled.missing:
        print(f"warning: the backup has no file '{key}', which a row names", file=sys.stderr)
    if as_json:
        print(json.dumps(_document(restored)))
        return
    for line in _lines(restored):
        print(line)


@contextmanager
def _source(file: str) -> Iterator[BinaryIO]:
    if file == "-":
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as stream:
        yield stream


def _document(restored: Restored) -> dict[str, object]:
    return {
        "object": "restore",
        "created_at": restored.created_at,
        "schema": restored.schema,
        "rows": restored.rows,
        "files": restored.files,
        "size_bytes": restored.size_bytes,
        "requeued": restored.settled.requeued,
        "missing": restored.settled.missing,
    }


def _lines(restored: Restored) -> list[str]:
    jobs, sets, keys = (restored.rows.get(name, 0) for name in ("jobs", "datasets", "api_keys"))
    what = f"{jobs} jobs, {sets} data sets, {keys} keys, {restored.files} files, {size(restored.size_bytes)}"
    lines = [f"Restored the state of {restored.created_at}: {what}."]
    if restored.settled.requeued:
        lines.append(f"{len(restored.settled.requeued)} jobs ran at that time; they wait to go on from a checkpoint.")
    return lines


def main() -> int:
    # A database in a file is made here, and has everybody's data: as by `up`, for this user alone.
    os.umask(0o077)
    return run_program(program, "trainshed restore")


if __name__ == "__main__":
    sys.exit(main())
