"""What the database may forget. Jobs and their journals are kept; what only served a request's repeat is not."""

from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import delete, select, tuple_

from app.db import Database
from app.jobs.models import IdempotencyKey

KEEP_KEYS: Final = timedelta(days=7)
"""How long a request may be repeated with its Idempotency-Key; a client that waits longer makes a second job."""
_AT_ONCE: Final = 1000


def forget_keys(database: Database, now: datetime, at_once: int = _AT_ONCE) -> int:
    """Delete idempotency keys older than `KEEP_KEYS`, in short transactions; answers how many.

    Several processes may do it at the same time.
    """
    old = (
        select(IdempotencyKey.principal, IdempotencyKey.key)
        .where(IdempotencyKey.created_at < now - KEEP_KEYS)
        .order_by(IdempotencyKey.created_at)
        .limit(at_once)
        .with_for_update(skip_locked=True)
    )
    forgotten = 0
    while True:
        with database.write() as session:
            gone = session.execute(
                delete(IdempotencyKey)
                .where(tuple_(IdempotencyKey.principal, IdempotencyKey.key).in_(old))
                .returning(IdempotencyKey.key)
                .execution_options(synchronize_session=False)
            ).all()
        forgotten += len(gone)
        if len(gone) < at_once:
            return forgotten
