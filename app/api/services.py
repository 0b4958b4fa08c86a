"""What the routes work with: made once by the composition root, reached by each request through its application."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Generic, Protocol, TypeVar

from anyio import CapacityLimiter
from fastapi import Depends, Request

from app.accounts.service import Principal
from app.api.auth import Authenticator, principal_of
from app.api.hub import Hub
from app.api.sse import StreamCounter
from app.api.turns import Turns
from app.archives import Limits as ArchiveLimits
from app.clock import Clock
from app.datasets.roots import DataRoots
from app.datasets.service import Source
from app.db import Database
from app.fleet.repository import HostView, fleet
from app.scheduling.plan import WaitingJob
from app.scheduling.queue import waiting_jobs
from app.storage import Storage

T = TypeVar("T")


class Rings(Protocol):
    """The doorbell as the API uses it: `ring` never blocks and never raises."""

    def ring(self, channel: str, message: str = "") -> None: ...

    @property
    def healthy(self) -> bool | None: ...


@dataclass(frozen=True)
class Limits:
    """Values out of the settings that routes need."""

    max_upload_bytes: int
    max_queued_jobs: int
    offline_after_s: float
    upload_dir: Path
    streams_per_key: int = 100
    max_predict_rows: int = 10_000
    max_queued_predictions: int = 100
    predict_deadline_s: float = 600.0
    lease_s: float = 60.0
    max_hold_s: float = 7 * 86_400.0
    max_bundle_bytes: int = 256 * 1024 * 1024
    bundles: ArchiveLimits = field(default_factory=ArchiveLimits)
    code_network: bool = False


class Recent(Generic[T]):
    """A value that may be `age_s` old: read again by the first who asks after that, the others wait for it."""

    def __init__(self, clock: Clock, age_s: float, read: Callable[[], T]) -> None:
        self._clock = clock
        self._age_ns = round(age_s * 1_000_000_000)
        self._read = read
        self._lock = threading.Lock()
        self._value: tuple[T, int] | None = None

    def get(self) -> T:
        with self._lock:
            now = self._clock.boot_ns()
            if self._value is None or now - self._value[1] >= self._age_ns:
                self._value = (self._read(), now)
            return self._value[0]

    def forget(self) -> None:
        with self._lock:
            self._value = None


@dataclass
class Services:
    database: Database
    storage: Storage
    bell: Rings
    clock: Clock
    limits: Limits
    authenticator: Authenticator
    hub: Hub
    roots: DataRoots = field(default_factory=lambda: DataRoots({}))

    def __post_init__(self) -> None:
        self.hosts: Recent[list[HostView]] = Recent(self.clock, 1.0, self._read_hosts)
        self.queue: Recent[list[WaitingJob]] = Recent(self.clock, 1.0, self._read_queue)
        self.streams = StreamCounter(self.limits.streams_per_key)
        # Checking a table takes the interpreter for itself; more at once would only slow every other request down.
        self.checkers = CapacityLimiter(2)
        self.turns = Turns()
        self.schemas: dict[tuple[str, str], Source] = {}
        self.bundle_names: dict[str, frozenset[str]] = {}

    def _read_hosts(self) -> list[HostView]:
        with self.database.read() as session:
            return fleet(session, self.database.now(session), self.limits.offline_after_s)

    def _read_queue(self) -> list[WaitingJob]:
        with self.database.read() as session:
            return waiting_jobs(session, self.database.now(session))


# Async, though they wait for nothing: FastAPI sends every other dependency to a thread and back.
async def _services(request: Request) -> Services:
    services = request.app.state.services
    assert isinstance(services, Services)  # noqa: S101 - create_app put it there; this tells the type checker
    return services


async def _principal(request: Request) -> Principal:
    return principal_of(request.scope)


ServicesDep = Annotated[Services, Depends(_services)]
PrincipalDep = Annotated[Principal, Depends(_principal)]
