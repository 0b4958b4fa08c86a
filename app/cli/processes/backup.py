"""`trainshed backup`: everything that the service keeps, in one file; the service may run meanwhile."""

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from app.cli.backup.errors import BackupFailed
from app.cli.backup.making import Made, make_backup, new_file
from app.cli.figures import size
from app.cli.processes.direct import opened, run_program
from app.clock import SystemClock
from app.settings import Settings, load_settings
from app.storage import Storage, configured_storage

program = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@program.command()
def backup(
    file: Annotated[str, typer.Argument(metavar="FILE.tar", help="Where to write it; - is standard output.")],
    without_storage: Annotated[
        bool, typer.Option("--without-storage", help="Rows only: the storage is backed up in another way.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Write jobs, journals, keys, data and models into one file, while the service runs or not.

    The file has everything that was ever uploaded and trained, and is written for this user alone. It has no settings
    and no secrets of the deployment, no logs, and nothing of what is under way: keep those apart, or do without.
    """
    settings = load_settings()
    storage = None if without_storage else configured_storage(settings)
    made = _to_stream(settings, storage) if file == "-" else _to_file(settings, storage, Path(file))
    for key in made.copied.missing:
        if not key.startswith("checkpoints/"):
            print(f"warning: the storage has no file '{key}', which a row names", file=sys.stderr)
    # Standard output may be the backup itself.
    output = sys.stderr if file == "-" else sys.stdout
    print(json.dumps(_document(file, made)) if as_json else _sentence(file, made), file=output)


def _to_file(settings: Settings, storage: Storage | None, target: Path) -> Made:
    with opened(settings) as database, new_file(target) as (stream, scratch):
        return make_backup(database, storage, stream, scratch, SystemClock().now())


def _to_stream(settings: Settings, storage: Storage | None) -> Made:
    try:
        with opened(settings) as database, tempfile.TemporaryDirectory(prefix="trainshed-") as folder:
            made = make_backup(database, storage, sys.stdout.buffer, Path(folder), SystemClock().now())
            sys.stdout.flush()
            return made
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # Else the interpreter fails once more at its end, at what it still has to write.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise BackupFailed("-", error) from error


def _document(file: str, made: Made) -> dict[str, object]:
    return {
        "object": "backup",
        "file": file,
        "schema": made.schema,
        "rows": made.rows,
        "files": made.copied.files,
        "size_bytes": made.copied.size_bytes,
        "missing": made.copied.missing,
    }


def _sentence(file: str, made: Made) -> str:
    files = f"{made.copied.files} files, {size(made.copied.size_bytes)}"
    return f"{file}: {made.rows['jobs']} jobs, {made.rows['datasets']} data sets, {files}."


def main() -> int:
    return run_program(program, "trainshed backup")


if __name__ == "__main__":
    sys.exit(main())
