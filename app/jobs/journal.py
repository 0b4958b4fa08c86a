"""The journal of a job: one ordered, durable list of reports, and the fence that keeps late writers out.

Numbers run 1..n without gaps because they are given out under the lock of one narrow row, `job_heads`, in the
transaction that writes the rows. The same row knows the current attempt and whether the job has ended.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

import orjson
from sqlalchemy import Text, insert, select, type_coerce, update
from sqlalchemy.orm import Session

from app.clock import to_rfc3339
from app.jobs.models import JobHead, JournalRow

Kind = Literal["state", "metric", "log", "checkpoint", "telemetry", "notice"]
MAX_PAGE: Final = 1000


@dataclass(frozen=True)
class Entry:
    """What one report carries; `data` must already hold strings for non-finite numbers (app.series.nonfinite)."""

    kind: Kind
    data: dict[str, Any]


@dataclass(frozen=True)
class JournalEvent:
    """One row as it is read: `text` is the JSON object as it was stored, never decoded on the way out."""

    seq: int
    attempt: int
    kind: str
    at: datetime
    text: str


def append(
    session: Session,
    job_id: str,
    attempt: int,
    entries: Sequence[Entry],
    now: datetime,
    *,
    close: bool = False,
    raise_fence_to: int | None = None,
) -> int | None:
    """Write `entries` with the next numbers and answer the last one; None when the writer is stale or the job closed.

    `attempt` is the fence: it must be the job's current one. `raise_fence_to` makes a later attempt the current one
    in the same step, `close` ends the journal for good.
    """
    values: dict[str, Any] = {"last_seq": JobHead.last_seq + len(entries)}
    if close:
        values["closed"] = True
    if raise_fence_to is not None:
        values["attempt"] = raise_fence_to
    last = session.execute(
        update(JobHead)
        .where(JobHead.job_id == job_id, JobHead.attempt == attempt, JobHead.closed.is_(False))
        .values(**values)
        .returning(JobHead.last_seq)
        .execution_options(synchronize_session=False)
    ).scalar()
    if last is None:
        return None
    if entries:
        number = attempt if raise_fence_to is None else raise_fence_to
        session.connection().execute(
            insert(JournalRow),
            [
                {
                    "job_id": job_id,
                    "seq": last - len(entries) + 1 + index,
                    "attempt": number,
                    "kind": entry.kind,
                    "at": now,
                    "data": orjson.dumps(entry.data).decode(),
                }
                for index, entry in enumerate(entries)
            ],
        )
    return last


def read(
    session: Session, job_id: str, after: int, limit: int = MAX_PAGE, kind: Kind | None = None
) -> list[JournalEvent]:
    """Up to `limit` events with `seq > after`, ascending."""
    query = (
        select(JournalRow.seq, JournalRow.attempt, JournalRow.kind, JournalRow.at, type_coerce(JournalRow.data, Text))
        .where(JournalRow.job_id == job_id, JournalRow.seq > after)
        .order_by(JournalRow.seq)
        .limit(limit)
    )
    if kind is not None:
        query = query.where(JournalRow.kind == kind)
    return [JournalEvent(*row) for row in session.connection().execute(query)]


def head(session: Session, job_id: str) -> tuple[int, bool]:
    """The last number given out, and whether the journal is closed."""
    row = session.execute(select(JobHead.last_seq, JobHead.closed).where(JobHead.job_id == job_id)).one()
    return row.last_seq, row.closed


def event_json(event: JournalEvent) -> bytes:
    """The wire form: `{"seq", "at", "attempt", "kind", …data}`; the stored text is spliced, not decoded."""
    start = f'{{"seq":{event.seq},"at":"{to_rfc3339(event.at)}","attempt":{event.attempt},"kind":"{event.kind}"'
    rest = event.text[1:]
    return (f"{start}{rest}" if rest == "}" else f"{start},{rest}").encode()
