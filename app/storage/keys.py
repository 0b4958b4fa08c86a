"""Storage keys: built here from ids, never from what a client wrote.

A key is up to eight segments joined by `/`. A segment begins with a letter or digit and has no two dots in a row, so it
can be neither `..` nor a hidden file. This pattern is the first guard against leaving the storage; how files are opened
is the second.
"""

import re
from typing import Final

from app.errors import TrainshedError

_SEGMENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
_MOST_SEGMENTS: Final = 8
_LIMIT: Final = 255

ARTIFACTS: Final = "artifacts"
BUNDLES: Final = "bundles"
CHECKPOINTS: Final = "checkpoints"
DATASETS: Final = "datasets"
EXPORTS: Final = "exports"


class InvalidKey(TrainshedError):
    """A fault of the caller, never of a client: no client chooses a key."""

    def __init__(self, key: str) -> None:
        super().__init__(
            f"{key[:_LIMIT]!r} is not a storage key; one looks like 'artifacts/job_…/1/model.safetensors'."
        )
        self.key = key


def is_segment(text: str) -> bool:
    """Whether `text` can be one part of a key, hence the name of a file: at most 120 characters, ASCII."""
    return _SEGMENT.fullmatch(text) is not None and ".." not in text


def segments_of(key: str) -> tuple[str, ...]:
    """The parts of a key.

    Raises:
        InvalidKey: `key` is not one.
    """
    parts = tuple(key.split("/"))
    if len(key) > _LIMIT or len(parts) > _MOST_SEGMENTS or not all(map(is_segment, parts)):
        raise InvalidKey(key)
    return parts


def dataset_key(dataset_id: str) -> str:
    """Where an uploaded file lies: under its own id, so that deleting one data set can never take another's bytes."""
    return f"{DATASETS}/{dataset_id}"


def bundle_key(bundle_id: str) -> str:
    """Where an uploaded bundle of code lies."""
    return f"{BUNDLES}/{bundle_id}"


def artifact_key(job_id: str, attempt: int, name: str) -> str:
    """Where an attempt's file lies: attempts cannot overwrite each other's files, whatever comes back to life."""
    return f"{ARTIFACTS}/{job_id}/{attempt}/{name}"


def checkpoint_prefix(job_id: str, attempt: int, step: int, again: int = 0) -> str:
    """Under which prefix an attempt's checkpoint lies.

    An attempt that writes a second checkpoint of one step, say a final one, stores it beside the first: files of one
    are never mixed with those of the other.
    """
    return f"{checkpoints_of(job_id)}/{attempt}/{step}" + (f".{again}" if again else "")


def checkpoints_of(job_id: str) -> str:
    """The prefix of all checkpoints of a job."""
    return f"{CHECKPOINTS}/{job_id}"


def export_key(job_id: str, task_id: str, claim: int, name: str) -> str:
    """Where a file lies that was made from a model later: no two makings share a key, so none spoils another."""
    return f"{EXPORTS}/{job_id}/{task_id}/{claim}/{name}"


def prefixes_of_job(job_id: str) -> tuple[str, ...]:
    """The prefixes below which all files of a job lie."""
    return tuple(f"{kind}/{job_id}" for kind in (ARTIFACTS, CHECKPOINTS, EXPORTS))
