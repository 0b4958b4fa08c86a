"""What the whole service is now, for Prometheus: read from the database each time somebody asks, by any API process.

Several API processes show the same values, so queries take the `max` over instances where they sum counters.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import product

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from app.api.fleet_gauges import fleet_gauges, gauge
from app.api.services import Recent, Services
from app.errors import TrainshedError
from app.fleet.models import Worker
from app.holds.models import Hold
from app.jobs.models import Job
from app.jobs.states import FINAL, JobState
from app.predictions.models import ModelTask
from app.predictions.states import OPEN, TaskKind
from app.scheduling.plan import plan

log = structlog.get_logger("trainshed.api")

_OVER_AGE_S = 60.0
_ALIVE = [state.value for state in JobState if not state.is_final]
_OVER = [state.value for state in FINAL]

Counts = dict[tuple[str, str], int]


class Gauges(Collector):
    """Everything that the database knows, and of this process its streams and whether it reaches broker and database.

    Jobs that are over are counted once a minute: there is no end to them, and their index has no framework.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._over: Recent[Counts] = Recent(services.clock, _OVER_AGE_S, self._read_over)

    def describe(self) -> Iterable[Metric]:
        """Nothing: otherwise registering would already ask the database."""
        return []

    def collect(self) -> Iterator[Metric]:
        """What can be found out; without the database, that it does not answer."""
        yield gauge("trainshed_sse_connections", "Open event streams of this process.", self._services.hub.followers)
        healthy = self._services.bell.healthy
        if healthy is not None:
            yield gauge("trainshed_broker_up", "Whether Redis answers this process.", healthy)
        try:
            found = list(self._stored())
        except (TrainshedError, DBAPIError) as error:
            log.warning("metrics_without_database", error=str(error))
            found = []
        yield gauge("trainshed_database_up", "Whether the database answers this process.", bool(found))
        yield from found

    def _stored(self) -> Iterator[Metric]:
        services = self._services
        with services.database.read() as session:
            now = services.database.now(session)
            yield _jobs({**_count(session, _ALIVE), **self._over.get()})
            yield from _queued(session)
            yield _model_tasks(session)
            holds = session.execute(select(func.count()).select_from(Hold).where(Hold.ended_at.is_(None))).scalar_one()
            left = frozenset(session.scalars(select(Worker.host_id).where(Worker.state != "online")))
        yield gauge("trainshed_holds", "Holds of devices that are open.", holds)
        yield gauge(
            "trainshed_jobs_startable",
            "Waiting jobs that fit on devices that are free now; more than none for long means that nobody schedules.",
            self._startable(now),
        )
        yield from fleet_gauges(services.hosts.get(), left, now)

    def _startable(self, now: datetime) -> int:
        return len(plan(self._services.queue.get(), self._services.hosts.get(), now).placements)

    def _read_over(self) -> Counts:
        with self._services.database.read() as session:
            return _count(session, _OVER)


def _count(session: Session, states: list[str]) -> Counts:
    rows = session.execute(
        select(Job.state, Job.framework, func.count())
        .where(Job.state.in_(states))
        .group_by(Job.state, Job.framework)
        .order_by(Job.state, Job.framework)
    )
    return {(state, framework): count for state, framework, count in rows}


def _jobs(counts: Counts) -> Metric:
    """Every state of every framework, so that a state that was left shows 0 and not nothing."""
    jobs = GaugeMetricFamily("trainshed_jobs", "Jobs by state and framework.", labels=["state", "framework"])
    for state, framework in product(JobState, ("torch", "tensorflow")):
        jobs.add_metric([state.value, framework], counts.get((state.value, framework), 0))
    return jobs


def _queued(session: Session) -> Iterator[Metric]:
    oldest = session.execute(select(func.min(Job.queued_at)).where(Job.state == JobState.QUEUED.value)).scalar()
    if oldest is not None:
        name = "trainshed_oldest_queued_job_timestamp_seconds"
        yield gauge(name, "When the job was queued that waits longest; nothing while none waits.", oldest.timestamp())


def _model_tasks(session: Session) -> Metric:
    family = GaugeMetricFamily(
        "trainshed_model_tasks", "Predictions and exports that wait or run.", labels=["kind", "state"]
    )
    asked = select(ModelTask.kind, ModelTask.state, func.count()).group_by(ModelTask.kind, ModelTask.state)
    found = {(kind, state): count for kind, state, count in session.execute(asked.where(ModelTask.state.in_(OPEN)))}
    for kind, state in product(TaskKind, OPEN):
        family.add_metric([kind.value, state.value], found.get((kind, state), 0))
    return family
