"""Every point of a job, a page of reports at a time: a run of millions needs no more memory than a short one."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson
from sqlalchemy import Text, select, type_coerce
from sqlalchemy.orm import Session

from app.db import Database
from app.jobs import journal
from app.jobs.models import Attempt, JournalRow

_REPORTS_AT_ONCE: Final = 100
_FIRST_REPORTS: Final = 20
"""In which a resumed attempt says all that it says of the step that it resumed from."""


class Point(NamedTuple):
    """`value` may be the string of a non-finite number."""

    name: str
    step: int
    epoch: int
    value: float | str
    attempt: int


@dataclass(frozen=True)
class Cut:
    """What of a journal counts: reports up to `last_seq`, and of each attempt the points up to a step.

    An attempt hides what earlier ones reported beyond the step that it resumed from, all of it when it started anew; so
    the smallest such step of all later attempts bounds an earlier one. What a later one says again of that very step
    counts once. The same rules as in `app.jobs.metrics.series`.
    """

    last_seq: int
    bounds: dict[int, int]
    repeated: dict[int, frozenset[str]]

    def shows(self, attempt: int, name: str, step: int) -> bool:
        bound = self.bounds.get(attempt)
        if bound is None or step < bound:
            return True
        return step == bound and name not in self.repeated[attempt]


def cut_of(session: Session, job_id: str) -> Cut:
    """The cut as it is now; what is reported later is not part of it."""
    last_seq, _ = journal.head(session, job_id)
    reported = select(JournalRow.attempt).where(JournalRow.job_id == job_id, JournalRow.kind == "metric").distinct()
    attempts = sorted(session.execute(reported).scalars(), reverse=True)
    rows = session.execute(select(Attempt.number, Attempt.resumed_from_step).where(Attempt.job_id == job_id))
    resumed = {number: step for number, step in rows if step is not None}
    bounds: dict[int, int] = {}
    repeated: dict[int, frozenset[str]] = {}
    bound: int | None = None
    again: frozenset[str] = frozenset()
    for attempt in attempts:
        if bound is not None:
            bounds[attempt], repeated[attempt] = bound, again
        begun = resumed.get(attempt, -1)
        if bound is None or begun < bound:
            bound, again = begun, frozenset()
        if begun == bound:
            again |= _said_of(session, job_id, attempt, begun)
    return Cut(last_seq, bounds, repeated)


def _said_of(session: Session, job_id: str, attempt: int, step: int) -> frozenset[str]:
    """The names of which an attempt reported a value of this step, the one that it resumed from: its first reports."""
    query = (
        select(type_coerce(JournalRow.data, Text))
        .where(JournalRow.job_id == job_id, JournalRow.attempt == attempt, JournalRow.kind == "metric")
        .order_by(JournalRow.seq)
        .limit(_FIRST_REPORTS)
    )
    found: set[str] = set()
    for text in session.execute(query).scalars():
        columns = orjson.loads(text).get("points", {})
        found |= {name for name, points in columns.items() if step in points["step"]}
    return frozenset(found)


def points(database: Database, job_id: str, cut: Cut, names: frozenset[str] | None) -> Iterator[list[Point]]:
    """The points of the named series (None: of all), in the order of their reports; a list for each page of reports.

    No session is open between two pages, however slow the reader is.
    """
    after = 0
    while True:
        reports = _page(database, job_id, after, cut.last_seq)
        if not reports:
            return
        yield [point for _, attempt, text in reports for point in _points(cut, attempt, text, names)]
        after = reports[-1][0]


def _page(database: Database, job_id: str, after: int, last_seq: int) -> list[tuple[int, int, str]]:
    query = (
        select(JournalRow.seq, JournalRow.attempt, type_coerce(JournalRow.data, Text))
        .where(JournalRow.job_id == job_id, JournalRow.seq > after, JournalRow.seq <= last_seq)
        .where(JournalRow.kind == "metric")
        .order_by(JournalRow.seq)
        .limit(_REPORTS_AT_ONCE)
    )
    with database.read() as session:
        return [(seq, attempt, text) for seq, attempt, text in session.connection().execute(query)]


def _points(cut: Cut, attempt: int, text: str, names: frozenset[str] | None) -> Iterator[Point]:
    found: dict[str, dict[str, list[Any]]] = orjson.loads(text).get("points", {})
    for name, columns in found.items():
        if names is None or name in names:
            for step, epoch, value in zip(columns["step"], columns["epoch"], columns["value"], strict=True):
                if cut.shows(attempt, name, step):
                    yield Point(name, step, epoch, value, attempt)
