"""The text log of a job, read back from its journal."""

from collections.abc import Iterator

import orjson
from sqlalchemy import Select, Text, select, type_coerce
from sqlalchemy.orm import Session

from app.jobs.models import JournalRow


def read_log(session: Session, job_id: str, tail: int | None = None) -> list[str]:
    """The lines in order, or the last `tail` of them."""
    if tail is None:
        query = _rows(job_id).order_by(JournalRow.seq)
        return [line for text in session.connection().execute(query).scalars() for line in lines_of(text)]
    newest: list[str] = []
    query = _rows(job_id).order_by(JournalRow.seq.desc()).execution_options(yield_per=100)
    # Closed explicitly: leaving the loop early would leave PostgreSQL's cursor open.
    with session.connection().execute(query) as result:
        for text in result.scalars():
            newest[:0] = lines_of(text)
            if len(newest) >= tail:
                break
    return newest[max(0, len(newest) - tail) :]


def _rows(job_id: str) -> Select[str]:
    return select(type_coerce(JournalRow.data, Text)).where(JournalRow.job_id == job_id, JournalRow.kind == "log")


def lines_of(text: str) -> Iterator[str]:
    """The lines of one stored log entry."""
    yield from orjson.loads(text).get("lines", ())
