"""Series of a job, read back from its journal: a report carries arrays, so a million points are a few thousand rows."""

from dataclasses import dataclass, field
from typing import Any

import orjson
from sqlalchemy import Text, select, type_coerce
from sqlalchemy.orm import Session

from app.jobs.models import Attempt, JournalRow
from app.series.downsample import downsample
from app.series.nonfinite import from_json


@dataclass
class Series:
    """Points of one name in order of step; arrays of one length. Values may be the strings of non-finite numbers."""

    step: list[int] = field(default_factory=list)
    epoch: list[int] = field(default_factory=list)
    value: list[float | str] = field(default_factory=list)
    attempt: list[int] = field(default_factory=list)
    total: int = 0


def series(session: Session, job_id: str, names: frozenset[str] | None, max_points: int) -> dict[str, Series]:
    """Every series (or the named ones), at most `max_points` each, extremes kept.

    From its first report on, a later attempt hides what earlier ones reported beyond the step that it resumed from: all
    of it when it started anew. The journal keeps them. Comparing steps instead would mix two runs, since reports come
    by time: the steps of one fall between those of the other.
    """
    found: dict[str, Series] = {}
    current = 0
    resumed = _resumed_from(session, job_id)
    query = (
        select(JournalRow.attempt, type_coerce(JournalRow.data, Text))
        .where(JournalRow.job_id == job_id, JournalRow.kind == "metric")
        .order_by(JournalRow.seq)
    )
    for attempt, text in session.connection().execute(query):
        if attempt != current:
            _hide(found, resumed.get(attempt))
            current = attempt
        for name, points in orjson.loads(text).get("points", {}).items():
            if names is None or name in names:
                _extend(found.setdefault(name, Series()), attempt, points)
    return {name: _thin(points, max_points) for name, points in sorted(found.items()) if points.step}


def _resumed_from(session: Session, job_id: str) -> dict[int, int]:
    rows = session.execute(
        select(Attempt.number, Attempt.resumed_from_step).where(
            Attempt.job_id == job_id, Attempt.resumed_from_step.is_not(None)
        )
    )
    return {number: step for number, step in rows if step is not None}


def _hide(found: dict[str, Series], resumed_from: int | None) -> None:
    for target in found.values():
        keep = 0 if resumed_from is None else sum(1 for step in target.step if step <= resumed_from)
        for column in (target.step, target.epoch, target.value, target.attempt):
            del column[keep:]


def _extend(target: Series, attempt: int, points: dict[str, list[Any]]) -> None:
    """Append; what an earlier attempt has of the same steps is reported again, and counts once.

    A checkpoint of a stop may be older than the values of its own step, and a trainer may be killed after its last
    report and before its last word: what goes on from there says them again.
    """
    steps = points["step"]
    while target.step and target.attempt[-1] != attempt and target.step[-1] >= steps[0]:
        del target.step[-1], target.epoch[-1], target.value[-1], target.attempt[-1]
    target.step.extend(steps)
    target.epoch.extend(points["epoch"])
    target.value.extend(points["value"])
    target.attempt.extend([attempt] * len(steps))


def _thin(points: Series, max_points: int) -> Series:
    total = len(points.step)
    if total <= max_points:
        points.total = total
        return points
    kept = downsample(points.step, [from_json(value) for value in points.value], max_points)
    return Series(
        step=[points.step[i] for i in kept],
        epoch=[points.epoch[i] for i in kept],
        value=[points.value[i] for i in kept],
        attempt=[points.attempt[i] for i in kept],
        total=total,
    )
