"""The stored files of jobs: which names are allowed, and the rows that say which bytes count."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.artifacts.models import Artifact
from app.errors import NotFound
from app.storage.keys import is_segment


@dataclass(frozen=True)
class ArtifactFacts:
    """A file that is in the storage already; `digest` is the SHA-256 of its bytes, in hex."""

    job_id: str
    name: str
    attempt: int
    kind: str
    media_type: str
    size_bytes: int
    digest: str
    storage_key: str


def valid_name(name: str) -> bool:
    """Whether a file of a job may be called so: one path segment of at most 120 ASCII characters, without `..`."""
    return is_segment(name)


def add(session: Session, facts: ArtifactFacts, now: datetime) -> str | None:
    """Make a stored file the job's artifact of that name, in place of one of an earlier attempt.

    To be called under the lock of the job's row, in the transaction that ends the attempt. Returns the key of a file
    that no row names any more, to be deleted after the commit: the replaced one, or the given one when a later attempt
    was there first.
    """
    row = session.get(Artifact, (facts.job_id, facts.name), populate_existing=True)
    if row is None:
        session.add(Artifact(**vars(facts), created_at=now))
        session.flush()
        return None
    if row.attempt > facts.attempt:
        return None if row.storage_key == facts.storage_key else facts.storage_key
    replaced = row.storage_key
    for column, value in vars(facts).items():
        setattr(row, column, value)
    row.created_at = now
    session.flush()
    return None if replaced == facts.storage_key else replaced


def list_artifacts(session: Session, job_id: str) -> list[Artifact]:
    """The artifacts of a job by name. Whether the caller may see the job was decided before."""
    return list(session.scalars(select(Artifact).where(Artifact.job_id == job_id).order_by(Artifact.name)))


def get_artifact(session: Session, job_id: str, name: str) -> Artifact:
    """One artifact of a job.

    Raises:
        NotFound: the job has none of that name, or the name cannot be one; the answer does not tell which.
    """
    row = session.get(Artifact, (job_id, name)) if valid_name(name) else None
    if row is None:
        raise NotFound("artifact", name if valid_name(name) else "?")
    return row
