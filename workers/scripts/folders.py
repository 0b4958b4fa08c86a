"""The folders of one attempt, and what is in them when the command starts."""

import contextlib
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.archives import Contents, Limits, extract
from workers.scripts.assignment import Job
from workers.scripts.packing import FILES_NAME

_EVERYTHING: Final = Limits(entries=1_000_000, total_bytes=1 << 62, file_bytes=1 << 62, ratio=1 << 20)
"""For a checkpoint, which this host wrote, within the limits of that time."""


@dataclass(frozen=True)
class Folders:
    """Below the work directory. `staged` is the host's own: what is packed there is announced to the worker."""

    work_dir: Path

    @property
    def code(self) -> Path:
        return self.work_dir / "code"

    @property
    def data(self) -> Path:
        return self.work_dir / "data"

    @property
    def checkpoints(self) -> Path:
        return self.work_dir / "checkpoints"

    @property
    def outputs(self) -> Path:
        return self.work_dir / "outputs"

    @property
    def tmp(self) -> Path:
        return self.work_dir / "tmp"

    @property
    def staged(self) -> Path:
        return self.work_dir / "staged"


def prepare(job: Job) -> tuple[Folders, Contents | None]:
    """Make the folders, unpack the bundle, link the data, and put a checkpoint's files back; answers what was unpacked.

    Raises:
        NotAnArchive, UnsafeArchive, ArchiveTooLarge: of the bundle, or of a checkpoint.
        OSError: the disk is full, or a folder cannot be made.
    """
    folders = Folders(job.work_dir)
    contents = None if job.bundle is None else extract(job.bundle, folders.code, job.archive)
    if job.resume is not None:
        _put_back(job.resume / FILES_NAME, folders.checkpoints)
    made = (folders.data, folders.outputs, folders.tmp, folders.staged)
    for folder in (*made, *((folders.code,) if contents is None else ()), folders.checkpoints):
        folder.mkdir(mode=0o700, exist_ok=True)
    for name, path in job.inputs.items():
        if folders.data not in path.parents:  # read in place: named where the others are
            (folders.data / f"{name}{path.suffix}").symlink_to(path)
    return folders, contents


def _put_back(archive: Path, folder: Path) -> None:
    """Unpack a checkpoint with the times that its files had: scripts look for the newest one."""
    extract(archive, folder, _EVERYTHING)
    with zipfile.ZipFile(archive) as packed:
        times = {info.filename: info.comment for info in packed.infolist() if not info.is_dir()}
    for name, modified in times.items():
        with contextlib.suppress(OSError, ValueError):
            os.utime(folder / name, ns=(int(modified), int(modified)), follow_symlinks=False)
