"""Hosts, and taking one out of service."""

from collections.abc import Callable
from typing import Annotated, Any

import structlog
from fastapi import Path, Response
from sqlalchemy.orm import Session

from app.accounts.service import Principal, Role
from app.api.bodies import json_response
from app.api.fleet_views import WorkerView
from app.api.openapi import problems
from app.api.routing import api_router, role
from app.api.services import PrincipalDep, Services, ServicesDep
from app.api.views import ListView
from app.broker import CHANNEL_WANTED
from app.clock import to_rfc3339
from app.errors import NotFound
from app.fleet.condition import read_condition
from app.fleet.registry import set_cordoned, set_draining
from app.fleet.repository import HostView
from app.ids import pattern

log = structlog.get_logger("trainshed.api")
router = api_router(prefix="/v1", tag="Fleet")

WorkerId = Annotated[str, Path(pattern=pattern("wrk"), description="The worker's id.")]


@router.get("/workers", summary="List workers", responses={200: {"model": ListView[WorkerView]}})
def list_workers(services: ServicesDep) -> Response:
    """One worker per host: whether it is heard, whether it takes new jobs and if not why, and what it runs."""
    data = [_worker(host) for host in services.hosts.get()]
    return json_response({"object": "list", "data": data, "has_more": False, "next_after": None})


@router.post(
    "/workers/{worker_id}/cordon",
    summary="Keep new jobs off a worker",
    openapi_extra=role(Role.ADMIN),
    responses={200: {"model": WorkerView}, **problems("not_found")},
)
def cordon_worker(worker_id: WorkerId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """Jobs that run there go on; nothing new is placed. Asking again is harmless."""
    return _change(
        services, principal, worker_id, "cordon", lambda session: set_cordoned(session, worker_id, cordoned=True)
    )


@router.post(
    "/workers/{worker_id}/drain",
    summary="Empty a worker",
    openapi_extra=role(Role.ADMIN),
    responses={200: {"model": WorkerView}, **problems("not_found")},
)
def drain_worker(worker_id: WorkerId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """Cordon it, and stop each job there at its next safe point. Asking again is harmless.

    A job goes back to its place in the queue with a checkpoint, spends nothing of its budget, and goes on elsewhere.
    What people hold stays theirs.
    """
    return _change(
        services,
        principal,
        worker_id,
        "drain",
        lambda session: set_draining(session, worker_id, services.database.now(session)),
    )


@router.post(
    "/workers/{worker_id}/uncordon",
    summary="Let a worker take jobs again",
    openapi_extra=role(Role.ADMIN),
    responses={200: {"model": WorkerView}, **problems("not_found")},
)
def uncordon_worker(worker_id: WorkerId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """The opposite of cordon and of drain. Asking again is harmless."""
    return _change(
        services, principal, worker_id, "uncordon", lambda session: set_cordoned(session, worker_id, cordoned=False)
    )


def _change(
    services: Services, principal: Principal, worker_id: str, what: str, write: Callable[[Session], bool]
) -> Response:
    with services.database.write() as session:
        if not write(session):
            raise NotFound("worker", worker_id)
    who = {"user": principal.user, "project": principal.project, "key_id": principal.key_id}
    log.warning("worker_changed", change=what, worker_id=worker_id, **who)
    services.hosts.forget()
    services.bell.ring(CHANNEL_WANTED)
    return json_response(next(_worker(host) for host in services.hosts.get() if host.worker_id == worker_id))


def _worker(host: HostView) -> dict[str, Any]:
    return {
        "id": host.worker_id,
        "object": "worker",
        "host_id": host.host_id,
        "host_name": host.host_name,
        "online": host.online,
        "cordoned": host.cordoned,
        "draining": host.drain_requested_at is not None,
        "drain_requested_at": to_rfc3339(host.drain_requested_at) if host.drain_requested_at else None,
        "blocked": host.blocked,
        "reason": host.reason,
        "condition": read_condition(host.condition).as_json(),
        "frameworks": sorted(host.frameworks),
        "version": host.version,
        "started_at": to_rfc3339(host.started_at) if host.started_at else None,
        "heartbeat_at": to_rfc3339(host.heartbeat_at) if host.heartbeat_at else None,
        "devices": [device.id for device in host.devices],
        "devices_in_use": sum(device.job_id is not None for device in host.devices),
    }
