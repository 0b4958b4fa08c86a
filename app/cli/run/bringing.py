"""The files of an ended job into a folder of their own; folders that were sent as archives are folders again."""

import contextlib
import re
import zipfile
from pathlib import Path
from typing import Any, Final

from app.archives import ArchiveTooLarge, Limits, NotAnArchive, UnsafeArchive, extract
from app.cli.errors import UsageProblem
from app.cli.files import fetch
from app.cli.options import Session

_MOST_FILES: Final = 1_000_000


def choose_folder(asked: Path | None) -> Path | None:
    """The folder that was asked for, if it can be filled; None for one that is named after the job.

    Raises:
        UsageProblem: it has something in it already, or is a file.
    """
    if asked is not None and asked.exists() and (not asked.is_dir() or any(asked.iterdir())):
        raise UsageProblem(f"{asked} is there and not empty; --output names another folder.")
    return asked


def folder_for(job: dict[str, Any]) -> Path:
    """Named after the job, or after its id where that is taken."""
    name = re.sub(r"[^\w.-]+", "-", job.get("name") or "").strip(".-")
    named = Path(f"{name}-output")
    return named if name and not named.exists() else Path(f"{job['id']}-output")


def bring(at: Session, job: dict[str, Any], folder: Path) -> list[str]:
    """Download what the job left; the names of files and folders that are there now.

    Raises:
        UsageProblem: the folder cannot be written to.
        Damaged, Refused, Unreachable: a file did not come whole.
    """
    found = at.client.get(f"/v1/jobs/{job['id']}/artifacts")["data"]
    if not found:
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Neither git nor the next `trainshed run` takes what came out for code.
        (folder / ".gitignore").write_text("*\n", encoding="utf-8")
    except OSError as error:
        raise UsageProblem(f"{folder} cannot be written: {error.strerror}.") from error
    brought = []
    for item in found:
        path = fetch(
            at.client, f"/v1/jobs/{job['id']}/artifacts/{item['name']}", item, folder / Path(item["name"]).name
        )
        brought.append(_unpacked(path).name)
    return sorted(brought)


def _unpacked(path: Path) -> Path:
    """The folder that an archive of ours stands for; any other file as it is, an archive of the script's own too."""
    if path.suffix != ".zip" or not _is_ours(path):
        return path
    folder = path.with_suffix("")
    size = path.stat().st_size
    # Its files lie in it uncompressed, so together they are no larger than it is.
    limits = Limits(entries=_MOST_FILES, total_bytes=size, file_bytes=size, ratio=2)
    with contextlib.suppress(FileExistsError, NotAnArchive, UnsafeArchive, ArchiveTooLarge):
        extract(path, folder, limits)
        path.unlink()
        return folder
    return path


def _is_ours(path: Path) -> bool:
    """Whether a job's host made it of a folder: stored, with each file's time in nanoseconds as its comment."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except (OSError, zipfile.BadZipFile):
        return False
    return bool(members) and all(
        member.compress_type == zipfile.ZIP_STORED and member.comment.isdigit() for member in members
    )
