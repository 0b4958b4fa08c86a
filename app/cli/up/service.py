"""The service of one host: which children there are, in which order they start, and when they are ready."""

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from app.cli.connection import Connection, read_client_file, write_client_file
from app.cli.up import redis_server
from app.cli.up.child import Child, Program
from app.cli.up.home import Home, ProcessName
from app.cli.up.readiness import Readiness
from app.cli.up.signals import Signals
from app.cli.up.supervisor import Supervisor
from app.settings import Settings

# Generous: the first start on a slow disk compiles every module it imports.
_START_LIMIT_S: Final = 60.0
_READY_LIMIT_S: Final = 60.0
# Without a key a worker that lacks a framework looks like no worker.
_UNKNOWN_LIMIT_S: Final = 10.0
# What the worker needs beyond the grace it gives its trainers: to store what they left and to say goodbye.
_AFTER_GRACE_S: Final = 10.0
# Added to TRAINSHED_METRICS_PORT.
_METRICS_PORTS: Final = {"api": 0, "control": 1, "worker": 2}


@dataclass(frozen=True)
class Ready:
    """What a person or a program needs to use the service; `first_key` only when this start made it."""

    url: str
    key: str
    first_key: str
    missing: tuple[str, ...]
    seconds: float


class Service:
    """Redis (unless there is one elsewhere), API, control and worker, in this order; stopped the other way round.

    With `code` the first key, or the one that is stored in the home, may bring code along.
    """

    def __init__(
        self,
        settings: Settings,
        environ: Mapping[str, str],
        signals: Signals,
        tell: Callable[[str], None],
        *,
        code: bool = False,
    ) -> None:
        self._settings = settings
        self._home = Home(settings.home, settings.effective_run_dir)
        self._environ = dict(environ)
        self._prepare_arguments = ("--code",) if code else ()
        self._supervisor = Supervisor(signals, tell, self._changed)
        self._url = ""
        self._socket: Path | None = None

    def start(self) -> Ready:
        """Start everything and wait until it can take a job.

        Raises:
            ChildFailed, NotReadyInTime, NoRedis: it cannot be started; call `stop`.
            StopAsked: a stop came first; call `stop`.
        """
        began = time.monotonic()
        self._home.api_file.unlink(missing_ok=True)
        redis = self._start_redis()
        first_key = self._prepare()
        if redis is not None:
            self._await_redis(redis)
        api = self._program("api")
        for program in (api, self._program("control"), self._program("worker", self._worker_grace())):
            self._supervisor.start(program)
        self._url = self._supervisor.wait_for(self._api_url, "the API", _START_LIMIT_S)
        self._keep_port(api)
        self._changed()
        key = self._store_key(first_key)
        return Ready(self._url, key, first_key, self._await_ready(key), time.monotonic() - began)

    def run(self) -> None:
        self._supervisor.run()

    def stop(self) -> None:
        self._supervisor.stop()
        if self._socket is not None:
            redis_server.remove(self._socket, self._home)
        self._home.forget_instance()

    def _start_redis(self) -> Child | None:
        if self._settings.broker_url:
            return None
        server = redis_server.find_server(self._environ)
        self._socket = redis_server.socket_path(self._home)
        self._environ["TRAINSHED_BROKER_URL"] = f"unix://{self._socket}"
        return self._supervisor.start(redis_server.program(server, self._socket, self._home, self._environ))

    def _await_redis(self, child: Child) -> None:
        socket = self._socket
        if socket is not None:
            self._supervisor.wait_for(
                lambda: redis_server.answers(socket, child.pid) or None, "the embedded Redis", _START_LIMIT_S
            )

    def _prepare(self) -> str:
        """Migrate, and make the first key of a new database; the key, or nothing."""
        program = self._program("prepare")
        printed = self._supervisor.run_once(replace(program, command=(*program.command, *self._prepare_arguments)))
        return json.loads(printed)["key"] or ""

    def _program(self, name: str, grace_s: float = 10.0) -> Program:
        # -P: a folder `app` or `workers` in the working directory must not be taken for ours.
        command = (sys.executable, "-P", "-m", f"app.cli.processes.{name}")
        environment = {"TRAINSHED_LOG_FORMAT": "text", **self._environ, **self._metrics_port(name)}
        return Program(name, command, environment, self._home.logs / f"{name}.log", grace_s)

    def _metrics_port(self, name: str) -> dict[str, str]:
        """The children are on one host, so each listens on a port of its own: the API on that of the settings."""
        port = self._settings.metrics_port
        return {"TRAINSHED_METRICS_PORT": str(port + _METRICS_PORTS.get(name, 0))} if port else {}

    def _worker_grace(self) -> float:
        return self._settings.stop_grace_s + _AFTER_GRACE_S

    def _api_url(self) -> str | None:
        try:
            url = self._home.api_file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        return url or None

    def _keep_port(self, api: Program) -> None:
        """When the API is started again, it must be where clients know it to be."""
        port = str(urlsplit(self._url).port)
        self._supervisor.replace(replace(api, environment={**api.environment, "TRAINSHED_PORT": port}))

    def _store_key(self, first_key: str) -> str:
        """Tell clients on this host; a key that was stored before stays, as it cannot be read from the database."""
        stored = read_client_file(self._home.client_file)
        key = first_key or (stored.key if stored is not None else "")
        if key:
            write_client_file(self._home.client_file, self._url, key)
        return key

    def _await_ready(self, key: str) -> tuple[str, ...]:
        """Wait until a worker is there and all is well; what never comes is named, but does not end the service."""
        until = time.monotonic() + (_READY_LIMIT_S if key else _UNKNOWN_LIMIT_S)
        readiness = Readiness(self._url, key, trust_env=not Connection(self._url, key).is_local)

        def look() -> tuple[str, ...] | None:
            found = readiness.look()
            return found.missing if found.settled or time.monotonic() > until else None

        try:
            return self._supervisor.wait_for(look, "the service", 2 * _READY_LIMIT_S)
        finally:
            readiness.close()

    def _changed(self) -> None:
        children = self._supervisor.children
        names = {name: ProcessName(child.pid, child.started) for name, child in children.items()}
        self._home.write_instance(self._url, names)
