"""Prometheus metrics of an API process: requests as they are answered, and what `app.api.gauges` reads when asked."""

import time
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app import metering
from app.fleet.devices import IN_USE_ELSEWHERE, QUARANTINED
from app.fleet.repository import DeviceView, HostView

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BUCKETS: Final = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Telemetry:
    """One registry per application, so that two in one process do not mix; what the process counts is shown with it."""

    def __init__(self, *collectors: Collector) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "trainshed_http_requests",
            "Requests by route and status; a route is its template.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self.times = Histogram(
            "trainshed_http_request_duration_seconds",
            "Time from a request's arrival to the first byte of its answer.",
            ["method", "route"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        # There before the first failure, so that the share of failures is 0 and not nothing.
        self.requests.labels("GET", "other", 500)
        for collector in (*collectors, metering.ANY):
            self.registry.register(collector)

    def text(self) -> bytes:
        """The exposition; asks the database, so not for the event loop's thread."""
        return generate_latest(self.registry)


def state_of(host: HostView, device: DeviceView) -> str:
    """`busy` or `held` first: a device stays leased while its host is away, until the lease is settled."""
    if device.job_id is not None or device.hold_id is not None:
        return "busy" if device.job_id is not None else "held"
    if not host.online:
        return "offline"
    if device.health in (IN_USE_ELSEWHERE, QUARANTINED):
        return device.health
    return "free" if device.usable and host.blocked is None else "unusable"


class HttpTimes:
    """Pure ASGI: observes each request under its route's template, never its path, whose values have no bound."""

    def __init__(self, app: ASGIApp, telemetry: Telemetry) -> None:
        self.app = app
        self._telemetry = telemetry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began = time.perf_counter()

        async def observe(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = getattr(scope.get("route"), "path_format", "other")
                method = scope["method"] if scope["method"] in _METHODS else "other"
                self._telemetry.requests.labels(method, route, message["status"]).inc()
                self._telemetry.times.labels(method, route).observe(time.perf_counter() - began)
            await send(message)

        await self.app(scope, receive, observe)
