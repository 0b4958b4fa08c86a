"""The composition root of the API: settings in, a running server out."""

import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from types import FrameType
from typing import Final

import uvicorn
from anyio.to_thread import current_default_thread_limiter, run_sync
from fastapi import FastAPI

from app import __version__, metering
from app.api import (
    actions,
    artifacts,
    bundles,
    catalog,
    checkpoints,
    datasets,
    devices,
    docs,
    exports,
    fleet,
    handlers,
    health,
    holds,
    jobs,
    journal,
    keys,
    logs,
    metrics,
    predictions,
    removal,
    usage,
)
from app.api.auth import Authentication, Authenticator
from app.api.connection import BoundedHead
from app.api.context import RequestContext
from app.api.desk import Desk
from app.api.gauges import Gauges
from app.api.hosts import AllowedHosts
from app.api.hub import Hub, Pace
from app.api.limits import BodyLimits
from app.api.openapi import openapi_of
from app.api.schema_gate import SchemaGate
from app.api.services import Limits, Rings, Services
from app.api.submitter import Submitter
from app.api.telemetry import HttpTimes, Telemetry
from app.api.uploads import remove_abandoned
from app.archives import Limits as ArchiveLimits
from app.broker import CHANNEL_ANSWERS, CHANNEL_JOURNAL, Bell, Listener
from app.clock import Clock, SystemClock
from app.datasets.roots import DataRoots
from app.db import Database
from app.settings import Settings
from app.storage import Storage, configured_storage

# Threads that work on requests; the database's pools hold as many connections and some for streams and keys.
_THREADS: Final = 16
# Streams are ended by the stop itself; this is the net for whatever else does not end.
_GRACE_S: Final = 5
_KEEP_ALIVE_S: Final = 75
_STALLED_S: Final = 120
_ROUTERS: Final = (
    jobs,
    removal,
    actions,
    checkpoints,
    journal,
    metrics,
    logs,
    artifacts,
    predictions,
    exports,
    catalog,
    datasets,
    bundles,
    devices,
    fleet,
    holds,
    usage,
    keys,
    health,
    docs,
)


def create_app(
    settings: Settings,
    database: Database,
    storage: Storage,
    bell: Rings,
    *,
    clock: Clock | None = None,
    pace: Pace | None = None,
) -> FastAPI:
    """The application over things that exist already; whoever made them closes them."""
    clock = clock or SystemClock()
    hub = Hub(database, pace)
    authenticator = Authenticator(database, clock)
    roots = DataRoots(settings.data_roots)
    services = Services(database, storage, bell, clock, _limits(settings), authenticator, hub, roots)
    desk = Desk(database, hub.pace.poll_s)
    telemetry = Telemetry(Gauges(services))
    app = FastAPI(
        title="Trainshed",
        version=__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_lifespan(services, desk, settings.broker_url),
    )
    app.state.services = services
    app.state.submitter = Submitter(services)
    app.state.desk = desk
    app.state.telemetry = telemetry
    app.state.readiness = health.Readiness(services)
    app.openapi = lambda: openapi_of(app)  # type: ignore[method-assign] # FastAPI's documented way
    for module in _ROUTERS:
        # Not include_router: it wraps each route in a context of its own, and our routes need none.
        app.router.routes.extend(module.router.routes)
    handlers.install(app)
    # The last one added is the outermost.
    app.add_middleware(
        BodyLimits,
        settings.max_body_bytes,
        settings.max_upload_bytes,
        settings.max_predict_bytes,
        settings.max_bundle_bytes,
    )
    app.add_middleware(Authentication, authenticator)
    app.add_middleware(SchemaGate, database)
    app.add_middleware(AllowedHosts, settings.allowed_hosts)
    app.add_middleware(RequestContext)
    app.add_middleware(HttpTimes, telemetry)
    return app


def main(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; prints `listening on http://…` and writes the address to `<run dir>/api.url`."""
    database = Database(settings.effective_database_url, synchronous=settings.sqlite_synchronous, pool_size=_THREADS)
    bell = Bell(settings.broker_url or None)
    try:
        bell.start()
        app = create_app(settings, database, configured_storage(settings), bell)
        exposed = metering.exposed(settings.metrics_address, settings.metrics_port, app.state.telemetry.registry)
        with exposed, listen(settings.host, settings.port) as listening:
            server_of(app, settings.effective_run_dir).run(sockets=[listening])
    finally:
        bell.stop()
        database.dispose()


def server_of(app: FastAPI, run_dir: Path) -> "Server":
    """The server of an application that `create_app` made; it writes its address into `run_dir`."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        lifespan="on",
        http=BoundedHead,
        ws="none",
        # Longer than clients keep an idle connection, so that they close first and no request meets a closing one.
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )
    return Server(config, app.state.services.hub, run_dir / "api.url")


class Server(uvicorn.Server):
    """Uvicorn, which ends open streams when it is told to stop, and says where it can be reached."""

    def __init__(self, config: uvicorn.Config, hub: Hub, url_file: Path) -> None:
        super().__init__(config)
        self._hub = hub
        self._url_file = url_file

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        if sockets and self.started:
            url = url_of(sockets[0])
            _write_atomically(self._url_file, url)
            print(f"listening on {url}", flush=True)  # noqa: T201 - the one line that a person or a script waits for

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Another API of this run folder may have written its own address since.
        if sockets and _reads(self._url_file, url_of(sockets[0])):
            self._url_file.unlink(missing_ok=True)
        await super().shutdown(sockets=sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the shape of a signal handler
        """Stop in good order, exit 0; a second Ctrl-C stops waiting. The signal is not raised again afterwards."""
        self._hub.stop_from_signal()
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def url_of(listening: socket.socket) -> str:
    """The address at which this host reaches the socket; one that listens everywhere is reached at the loopback."""
    host, port = listening.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"http://[{reachable}]:{port}" if ":" in reachable else f"http://{reachable}:{port}"


def listen(host: str, port: int) -> socket.socket:
    """A socket in our hands, so that port 0 can be told before the first request."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listening = socket.socket(family, kind, protocol)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Connections inherit these. A client that takes nothing, or is gone without a word, would else be kept for ever,
    # with all that is still to be sent to it: closing a connection waits for its client too.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _STALLED_S // 2)
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STALLED_S * 1000)
    listening.bind(address)
    return listening


def _reads(path: Path, text: str) -> bool:
    try:
        return path.read_text(encoding="utf-8") == text
    except OSError:
        return False


def _write_atomically(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.replace(path)


def _limits(settings: Settings) -> Limits:
    return Limits(
        max_upload_bytes=settings.max_upload_bytes,
        max_queued_jobs=settings.max_queued_jobs,
        offline_after_s=max(3 * settings.heartbeat_s, 3.0),
        upload_dir=settings.effective_run_dir / "uploads",
        max_predict_rows=settings.max_predict_rows,
        max_queued_predictions=settings.max_queued_predictions,
        predict_deadline_s=settings.predict_deadline_s,
        lease_s=settings.lease_s,
        max_hold_s=settings.max_hold_s,
        max_bundle_bytes=settings.max_bundle_bytes,
        code_network=settings.code_network == "on",
        bundles=ArchiveLimits(
            entries=settings.max_bundle_files,
            total_bytes=settings.max_bundle_unpacked_bytes,
            file_bytes=settings.max_bundle_unpacked_bytes,
        ),
    )


def _lifespan(
    services: Services, desk: Desk, broker_url: str
) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        current_default_thread_limiter().total_tokens = _THREADS
        await run_sync(remove_abandoned, services.limits.upload_dir, services.clock.now())
        hub = services.hub
        hub.start()
        desk.start()
        listener = _listener(broker_url, hub, desk) if broker_url else None
        if listener is not None:
            listener.start()
        try:
            yield
        finally:
            hub.stop()
            if listener is not None:
                await run_sync(listener.stop)

    return lifespan


def _listener(broker_url: str, hub: Hub, desk: Desk) -> Listener:
    """Hands rings to those who wait for them; what was missed while Redis was away could be anybody's."""
    rung = {CHANNEL_JOURNAL: hub.ring_from_thread, CHANNEL_ANSWERS: desk.ring_from_thread}

    def ring_all() -> None:
        for ring in rung.values():
            ring(None)

    return Listener(broker_url, list(rung), lambda channel, identity: rung[channel](identity), ring_all)
