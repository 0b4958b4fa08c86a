"""Device-hours and energy of a span of time, by project, owner, job or day.

Every lease of an attempt or a hold is an interval; what lies outside the span does not count, and energy counts by the
share of the interval inside, since only its sum is kept.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from typing import Final, Literal

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from app.accounts.models import Project
from app.fleet.repository import HOLD_PREFIX
from app.holds.models import Hold
from app.jobs.models import Attempt, Job

By = Literal["project", "owner", "job", "day"]
_DAY: Final = timedelta(days=1)
_AT_ONCE: Final = 1000


@dataclass(frozen=True)
class Interval:
    """Devices of one kind that one holder, a job or a hold, had from `start` to `end`."""

    holder: str
    project: str
    owner: str
    kind: str
    devices: int
    start: datetime
    end: datetime
    energy_j: float | None

    def within(self, since: datetime, until: datetime) -> "Interval | None":
        """The part of it that lies in [since, until); None when there is none."""
        start, end = max(self.start, since), min(self.end, until)
        if end <= start:
            return None
        share = (end - start) / (self.end - self.start)
        energy = None if self.energy_j is None else self.energy_j * share
        return Interval(self.holder, self.project, self.owner, self.kind, self.devices, start, end, energy)

    @property
    def device_s(self) -> float:
        return self.devices * (self.end - self.start).total_seconds()


@dataclass
class Line:
    """A sum; `jobs` and `holds` are counted once each, however many attempts or days they have."""

    key: str
    cuda_device_s: float = 0.0
    cpu_device_s: float = 0.0
    energy_j: float | None = None

    def __post_init__(self) -> None:
        self._holders: set[str] = set()

    @property
    def holds(self) -> int:
        return sum(holder.startswith(HOLD_PREFIX) for holder in self._holders)

    @property
    def jobs(self) -> int:
        return len(self._holders) - self.holds

    def add(self, part: Interval) -> None:
        self._holders.add(part.holder)
        if part.kind == "cpu":
            self.cpu_device_s += part.device_s
        else:
            self.cuda_device_s += part.device_s
        if part.energy_j is not None:
            self.energy_j = (self.energy_j or 0.0) + part.energy_j

    def as_json(self) -> dict[str, object]:
        return {
            "key": self.key,
            "jobs": self.jobs,
            "holds": self.holds,
            "cuda_device_s": self.cuda_device_s,
            "cpu_device_s": self.cpu_device_s,
            "energy_j": self.energy_j,
        }


@dataclass(frozen=True)
class Report:
    """One line per key, the largest first (days: in their order), and their sum."""

    lines: list[Line]
    total: Line


def report(session: Session, project_id: str | None, since: datetime, until: datetime, by: By, now: datetime) -> Report:
    """Sum what was held in [since, until); None as the project: all. What is still held counts until `now`."""
    return summed(_all(session, project_id, since, until, now), since, min(until, now), by)


def summed(intervals: Iterable[Interval], since: datetime, until: datetime, by: By) -> Report:
    """The report of these intervals."""
    lines: dict[str, Line] = {}
    total = Line("total")
    for whole in intervals:
        part = whole.within(since, until)
        if part is None:
            continue
        total.add(part)
        for key, piece in _keyed(part, by):
            lines.setdefault(key, Line(key)).add(piece)
    return Report(sorted(lines.values(), key=lambda line: _rank(line, by)), total)


def _rank(line: Line, by: By) -> tuple[float, float, str]:
    return (0.0, 0.0, line.key) if by == "day" else (-line.cuda_device_s, -line.cpu_device_s, line.key)


def _keyed(part: Interval, by: By) -> Iterator[tuple[str, Interval]]:
    if by != "day":
        yield {"project": part.project, "owner": part.owner, "job": part.holder}[by], part
        return
    day = datetime.combine(part.start.astimezone(UTC).date(), time(), UTC)
    while day < part.end:
        piece = part.within(day, day + _DAY)
        if piece is not None:
            yield day.date().isoformat(), piece
        day += _DAY


def _all(
    session: Session, project_id: str | None, since: datetime, until: datetime, now: datetime
) -> Iterator[Interval]:
    yield from _of_attempts(session, project_id, since, until, now)
    yield from _of_holds(session, project_id, since, until, now)


def _of_attempts(
    session: Session, project_id: str | None, since: datetime, until: datetime, now: datetime
) -> Iterator[Interval]:
    query = (
        select(
            Job.id,
            Project.name,
            Job.owner,
            Job.device_type,
            Job.device_count,
            Attempt.claimed_at,
            Attempt.ended_at,
            Attempt.device_s,
            Attempt.energy_j,
        )
        .join(Job, Job.id == Attempt.job_id)
        .join(Project, Project.id == Job.project_id)
        .where(Attempt.claimed_at < until, or_(Attempt.ended_at.is_(None), Attempt.ended_at > since))
    )
    if project_id is not None:
        query = query.where(Job.project_id == project_id)
    for row in session.execute(query.execution_options(yield_per=_AT_ONCE)):
        if row.device_s is None and row.ended_at is not None:
            continue  # from before such things were kept
        held_s = None if row.device_s is None else row.device_s / row.device_count
        end = now if held_s is None else row.claimed_at + timedelta(seconds=held_s)
        yield Interval(
            row.id, row.name, row.owner, row.device_type, row.device_count, row.claimed_at, end, row.energy_j
        )


def _of_holds(
    session: Session, project_id: str | None, since: datetime, until: datetime, now: datetime
) -> Iterator[Interval]:
    query = (
        select(Hold, Project.name)
        .join(Project, Project.id == Hold.project_id)
        .where(Hold.created_at < until, or_(Hold.ended_at.is_(None), Hold.ended_at > since))
    )
    if project_id is not None:
        query = query.where(Hold.project_id == project_id)
    for hold, name in session.execute(query.execution_options(yield_per=_AT_ONCE)):
        kind = str(hold.devices[0]["kind"])
        end = hold.ended_at or now
        yield Interval(hold.id, name, hold.owner, kind, len(hold.devices), hold.created_at, end, hold.energy_j)
