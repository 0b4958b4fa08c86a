"""`Idempotency-Key` on a creating route other than the submit of a job, which has a way of its own to write many."""

from datetime import datetime
from hashlib import sha256

from sqlalchemy.orm import Session

from app.jobs.models import IdempotencyKey
from app.jobs.submit import find_replay

__all__ = ["digest_of", "find_replay", "remember"]


def digest_of(*parts: str) -> str:
    """What makes two requests the same: the route and what was sent, each part with its end marked."""
    return sha256("".join(f"{len(part)}:{part}" for part in parts).encode()).hexdigest()


def remember(session: Session, principal: str, idempotency: tuple[str, str], resource_id: str, at: datetime) -> None:
    """Keep which resource the key made, in the transaction that makes it.

    Raises:
        sqlalchemy.exc.IntegrityError: at the flush: another request with the key was first; see `find_replay`.
    """
    key, digest = idempotency
    session.add(
        IdempotencyKey(
            principal=principal,
            key=key,
            digest=digest,
            resource_id=resource_id,
            created_at=at,
        )
    )
