"""What a trainer does before it imports anything of a user's: variables, packages, and the unpacked code."""

import os
from pathlib import Path

from app.archives import Limits, extract
from workers.environments.activation import activate
from workers.protocol import Assignment


def prepare_user_code(job: Assignment) -> None:
    """Make the job's own code importable from the folder `job.code`; harmless for a job without any.

    To be called when this process has given up its rights: what packages bring runs here.

    Raises:
        UnsafeArchive, ArchiveTooLarge, NotAnArchive: the bundle cannot be unpacked.
        FileNotFoundError: the environment of packages is gone.
    """
    os.environ.update(job.variables)  # not at exec: the launcher, which keeps its rights, would read them too
    if job.packages is not None:
        activate(job.packages)
    if job.bundle is not None and job.code is not None:
        limits = Limits() if job.archive is None else Limits(**job.archive.model_dump())
        extract(Path(job.bundle), Path(job.code), limits)
