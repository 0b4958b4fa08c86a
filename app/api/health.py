"""Whether the service lives, whether it is ready, and what is wrong if not; and its metrics."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final, Literal

import structlog
from anyio.to_thread import run_sync
from fastapi import Query, Request, Response

from app.api.bodies import json_response
from app.api.openapi import text_answer
from app.api.routing import api_router
from app.api.services import Services
from app.api.telemetry import CONTENT_TYPE
from app.api.views import HealthView
from app.errors import TrainshedError
from app.migrations_runner import SchemaState, schema_state
from app.scheduling.plan import plan

log = structlog.get_logger("trainshed.api")
router = api_router(tag="Service")

Status = Literal["ok", "degraded", "down"]
_PROBE: Final = "trainshed.probe"
_STUCK_S: Final = 60.0
_WORST: Final[dict[Status, int]] = {"ok": 0, "degraded": 1, "down": 2}


@dataclass(frozen=True)
class Check:
    status: Status
    message: str


class Readiness:
    """What the checks say; all who ask meanwhile share one look, and for a second also one at which all was well.

    Anybody may ask, without a key. Were each given a look of its own, a flood of questions would take every thread, the
    database's connections and the processor from those who have one.
    """

    def __init__(self, services: Services, age_s: float = 1.0) -> None:
        self._services = services
        self._age_ns = round(age_s * 1_000_000_000)
        self._well: tuple[dict[str, Check], int] | None = None
        self._looking: asyncio.Task[dict[str, Check]] | None = None

    async def get(self) -> dict[str, Check]:
        if self._well is not None and self._services.clock.boot_ns() - self._well[1] < self._age_ns:
            return self._well[0]
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="readiness")
        return await asyncio.shield(self._looking)

    async def _look(self) -> dict[str, Check]:
        try:
            asked = self._services.clock.boot_ns()
            found = await run_sync(_checks, self._services)
            self._well = (found, asked) if _worst(found) == "ok" else None
        finally:
            self._looking = None
        return found


def _worst(checks: dict[str, Check]) -> Status:
    return max((check.status for check in checks.values()), key=_WORST.__getitem__)


@router.get("/livez", summary="Whether the process answers", responses={200: {"model": HealthView}})
async def livez() -> Response:
    """Asks nothing else, so that a lost database restarts no process."""
    return json_response({"status": "ok"})


@router.get(
    "/readyz",
    summary="Whether the service can do its work",
    responses={200: {"model": HealthView}, 503: {"model": HealthView, "description": "No job can be accepted now."}},
)
async def readyz(
    request: Request, verbose: Annotated[str | None, Query(description="Answer every check.")] = None
) -> Response:
    """503 when jobs cannot be accepted. Without Redis or workers they can: the answer is then 200 and `degraded`."""
    readiness: Readiness = request.app.state.readiness
    checks = await readiness.get()
    worst = _worst(checks)
    content: dict[str, object] = {"status": worst}
    if verbose is not None:
        content["checks"] = {name: vars(check) for name, check in checks.items()}
    headers = {"Retry-After": "2"} if worst == "down" else None
    return json_response(content, status=503 if worst == "down" else 200, headers=headers)


@router.get("/metrics", summary="Metrics for Prometheus", responses=text_answer("The exposition format, as text."))
def metrics(request: Request) -> Response:
    """Requests by route, jobs by state and framework, devices by state. Needs a key, as every reading route does."""
    return Response(request.app.state.telemetry.text(), media_type=CONTENT_TYPE)


def _checks(services: Services) -> dict[str, Check]:
    database = _answer(_database, services)
    # Without the database each of these would wait for it once more.
    lost = Check("down", "Needs the database.") if database.status == "down" else None
    return {
        "database": database,
        "storage": _answer(_storage, services),
        "broker": _answer(_broker, services),
        "workers": lost or _answer(_workers, services),
        "queue": lost or _answer(_queue, services),
    }


def _answer(check: Callable[[Services], Check], services: Services) -> Check:
    """What a check says; that it failed says enough, and why is for the log, not for whoever has no key."""
    try:
        return check(services)
    except TrainshedError as error:
        return Check("down", f"{error.code}: it does not answer.")
    except Exception as error:  # noqa: BLE001 - whatever is wrong with a part, the whole must be able to say so
        log.warning("check failed", check=check.__name__.strip("_"), error=repr(error))
        return Check("down", "It cannot be used.")


def _database(services: Services) -> Check:
    with services.database.read() as session:
        state = schema_state(session)
    if state is SchemaState.CURRENT:
        return Check("ok", "Answers, and its schema is the newest.")
    return Check("down", state.message)


def _storage(services: Services) -> Check:
    services.storage.exists("probe")
    return Check("ok", "Answers.")


def _broker(services: Services) -> Check:
    # Nobody hears this ring; it is there so that the next look knows of a Redis that came back.
    services.bell.ring(_PROBE)
    if services.bell.healthy is False:
        return Check("degraded", "Redis does not answer; jobs start and events arrive up to a second later.")
    return Check("ok", "Answers." if services.bell.healthy else "Not used yet.")


def _workers(services: Services) -> Check:
    online = [host for host in services.hosts.get() if host.online and not host.cordoned]
    missing = sorted({"torch", "tensorflow"} - {name for host in online for name in host.frameworks})
    # Counted, not named: whoever asks here needs no key. GET /v1/workers says which, and why.
    sick = sum(host.reason is not None for host in online)
    if missing:
        return Check("degraded", f"No worker online runs {' or '.join(missing)}.")
    if sick:
        return Check("degraded", f"{sick} of {len(online)} online cannot list their devices.")
    blocked = sum(host.blocked is not None for host in online)
    if blocked:
        return Check("degraded", f"{blocked} of {len(online)} online take nothing new; GET /v1/workers says why.")
    return Check("ok", f"{len(online)} online.")


def _queue(services: Services) -> Check:
    """A job that could run now and has waited long means that nobody schedules, whatever the processes look like."""
    now = services.clock.now()
    waiting = services.queue.get()
    startable = {placement.job_id for placement in plan(waiting, services.hosts.get(), now).placements}
    stuck = [job for job in waiting if job.id in startable and (now - job.queued_at).total_seconds() > _STUCK_S]
    if stuck:
        return Check("degraded", f"Jobs wait although devices for them are free: {len(stuck)}.")
    return Check("ok", f"Waiting jobs: {len(waiting)}.")
