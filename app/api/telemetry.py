"""Prometheus metrics: requests as they are answered, jobs and devices as they are when somebody asks."""

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import __version__
from app.db import Database
from app.fleet.repository import DeviceView, HostView
from app.jobs.models import Job
from app.predictions.models import ModelTask
from app.predictions.states import OPEN, TaskKind

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Telemetry:
    """One registry per application, so that two in one process do not mix."""

    def __init__(self, database: Database, hosts: Callable[[], list[HostView]], followers: Callable[[], int]) -> None:
        self._registry = CollectorRegistry()
        self.http = Histogram(
            "trainshed_http_request_duration_seconds",
            "Time from a request's arrival to the first byte of its answer.",
            ["method", "route", "status"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        built = Gauge("trainshed_build_info", "Always 1; the label tells the version.", ["version"], registry=None)
        self._registry.register(built)
        built.labels(__version__).set(1)
        self._registry.register(_Database(database, hosts, followers))

    def text(self) -> bytes:
        """The exposition; asks the database, so not for the event loop's thread."""
        return generate_latest(self._registry)


class _Database(Collector):
    def __init__(self, database: Database, hosts: Callable[[], list[HostView]], followers: Callable[[], int]) -> None:
        self._database = database
        self._hosts = hosts
        self._followers = followers

    def describe(self) -> Iterable[Metric]:
        """Nothing: otherwise registering would already ask the database."""
        return []

    def collect(self) -> Iterable[Metric]:
        jobs = GaugeMetricFamily("trainshed_jobs", "Jobs by state and framework.", labels=["state", "framework"])
        tasks = GaugeMetricFamily(
            "trainshed_model_tasks", "Predictions and exports that wait or run.", labels=["kind", "state"]
        )
        query = select(Job.state, Job.framework, func.count()).group_by(Job.state, Job.framework)
        asked = select(ModelTask.kind, ModelTask.state, func.count()).group_by(ModelTask.kind, ModelTask.state)
        with self._database.read() as session:
            for state, framework, count in session.execute(query.order_by(Job.state, Job.framework)):
                jobs.add_metric([state, framework], count)
            found = {
                (kind, state): count for kind, state, count in session.execute(asked.where(ModelTask.state.in_(OPEN)))
            }
        for kind, state in product(TaskKind, OPEN):
            tasks.add_metric([kind.value, state.value], found.get((kind, state), 0))
        devices = GaugeMetricFamily("trainshed_devices", "Devices by what they can be used for now.", labels=["state"])
        states = Tally(state_of(host, device) for host in self._hosts() for device in host.devices)
        for state in ("free", "busy", "unusable", "offline"):
            devices.add_metric([state], states[state])
        streams = GaugeMetricFamily("trainshed_event_streams", "Open event streams of this process.")
        streams.add_metric([], self._followers())
        return [jobs, tasks, devices, streams]


def state_of(host: HostView, device: DeviceView) -> str:
    """`busy` first: a device stays leased while its host is away, until the lease is settled."""
    if device.job_id is not None:
        return "busy"
    if not host.online:
        return "offline"
    return "free" if device.usable else "unusable"


class HttpTimes:
    """Pure ASGI: observes each request under its route's template, never its path, whose values have no bound."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self.app = app
        self._http = telemetry.http

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()

        async def observe(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path_format", "other")
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self._http.labels(method, route, message["status"]).observe(time.perf_counter() - began)
            await send(message)

        await self.app(scope, receive, observe)
