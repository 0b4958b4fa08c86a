"""`trainshed gc`: take what was kept long enough, and files that nobody names; straight in database and storage."""

import json
import sys
from typing import Annotated, Final

import typer

from app.cli.processes.direct import opened, run_program
from app.retention.upkeep import Kept, Retention, Swept
from app.settings import load_settings
from app.storage import configured_storage

_SHOWN: Final = 20

program = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@program.command()
def collect(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programs.")] = False,
) -> None:
    """Delete jobs and checkpoints past their days, and stored files that no row names.

    The days are TRAINSHED_KEEP_JOBS_DAYS and TRAINSHED_KEEP_CHECKPOINTS_DAYS; what is not set is kept for ever. The
    control process does the same by itself; this shows it first, or does it now.
    """
    settings = load_settings()
    kept = Kept(settings.keep_jobs_days, settings.keep_checkpoints_days)
    with opened(settings) as database:
        swept = Retention(database, configured_storage(settings), kept).sweep(dry_run=dry_run)
    if as_json:
        print(json.dumps(_document(swept, dry_run=dry_run)))
        return
    for line in _lines(swept, kept, dry_run=dry_run):
        print(line)


def _document(swept: Swept, *, dry_run: bool) -> dict[str, object]:
    return {
        "object": "sweep",
        "dry_run": dry_run,
        "jobs": swept.jobs,
        "checkpoints": [{"job_id": job_id, "step": step} for job_id, step in swept.checkpoints],
        "files": swept.files,
    }


def _lines(swept: Swept, kept: Kept, *, dry_run: bool) -> list[str]:
    did = "would delete" if dry_run else "deleted"
    found = [
        (f"jobs that ended more than {kept.jobs_days:g} days ago" if kept.jobs_days else "", swept.jobs),
        (
            f"checkpoints of jobs that ended more than {kept.checkpoints_days:g} days ago"
            if kept.checkpoints_days
            else "",
            [f"{job_id} step {step}" for job_id, step in swept.checkpoints],
        ),
        ("files that nobody names", swept.files),
    ]
    lines: list[str] = []
    for what, names in found:
        if not what:
            continue
        lines.append(f"{did} {len(names)} {what}")
        lines += [f"  {name}" for name in names[:_SHOWN]]
        lines += [f"  and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    if kept.jobs_days is None and kept.checkpoints_days is None:
        lines.append("Jobs and checkpoints are kept for ever; TRAINSHED_KEEP_JOBS_DAYS=90, say, would change that.")
    return lines


def main() -> int:
    return run_program(program, "trainshed gc")


if __name__ == "__main__":
    sys.exit(main())
