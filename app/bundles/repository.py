"""All SQL about bundles. Whoever asks names the project: what another one has does not exist."""

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from app.bundles.models import Bundle
from app.errors import NotFound


def get_bundle(session: Session, project_id: str, bundle_id: str, *, lock: bool = False) -> Bundle:
    """The bundle. Locked, it cannot be deleted until the transaction ends, where a database has such locks.

    Raises:
        NotFound: there is none with this id in this project.
    """
    query = _mine(project_id).where(Bundle.id == bundle_id)
    row = session.scalar(query.with_for_update() if lock else query)
    if row is None:
        raise NotFound("bundle", bundle_id)
    return row


def find_bundle(session: Session, project_id: str, digest: str) -> Bundle | None:
    """The project's bundle with these bytes, by their SHA-256 in hex."""
    return session.scalar(_mine(project_id).where(Bundle.digest == digest))


def list_bundles(
    session: Session,
    project_id: str,
    *,
    digest: str | None = None,
    after: str | None = None,
    limit: int = 50,
    descending: bool = True,
) -> list[Bundle]:
    """A page of the project's bundles by id, which is by time."""
    query = _mine(project_id)
    if digest is not None:
        query = query.where(Bundle.digest == digest)
    if after is not None:
        query = query.where(Bundle.id < after if descending else Bundle.id > after)
    return list(session.scalars(query.order_by(Bundle.id.desc() if descending else Bundle.id.asc()).limit(limit)))


def _mine(project_id: str) -> Select[Bundle]:
    return select(Bundle).where(Bundle.project_id == project_id)
