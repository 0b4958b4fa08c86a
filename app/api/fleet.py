"""Hosts and devices, and taking a host out of service."""

from typing import Annotated, Any

from fastapi import Path, Response
from sqlalchemy import select

from app.accounts.service import Role
from app.api.bodies import json_response
from app.api.openapi import problems
from app.api.routing import api_router, role
from app.api.services import PrincipalDep, Services, ServicesDep
from app.api.telemetry import state_of
from app.api.views import DeviceInfo, ListView, WorkerView
from app.broker import CHANNEL_WANTED
from app.clock import to_rfc3339
from app.errors import NotFound
from app.fleet.registry import set_cordoned
from app.fleet.repository import DeviceView, HostView
from app.ids import pattern
from app.jobs.models import Job

router = api_router(prefix="/v1", tag="Fleet")

WorkerId = Annotated[str, Path(pattern=pattern("wrk"), description="The worker's id.")]


@router.get("/devices", summary="List devices", responses={200: {"model": ListView[DeviceInfo]}})
def list_devices(services: ServicesDep, principal: PrincipalDep) -> Response:
    """Every device of every host, with what it can be used for now. Jobs of other projects are not named."""
    hosts = services.hosts.get()
    mine = _jobs_of(services, principal.project_id, hosts)
    return _whole_list([_device(host, device, mine) for host in hosts for device in host.devices])


@router.get("/workers", summary="List workers", responses={200: {"model": ListView[WorkerView]}})
def list_workers(services: ServicesDep) -> Response:
    """One worker per host: whether it is heard, whether it takes new jobs, and which frameworks it runs."""
    return _whole_list([_worker(host) for host in services.hosts.get()])


@router.post(
    "/workers/{worker_id}/cordon",
    summary="Keep new jobs off a worker",
    openapi_extra=role(Role.ADMIN),
    responses={200: {"model": WorkerView}, **problems("not_found")},
)
def cordon_worker(worker_id: WorkerId, services: ServicesDep) -> Response:
    """Jobs that run there go on; nothing new is placed. Asking again is harmless."""
    return _set_cordoned(services, worker_id, cordoned=True)


@router.post(
    "/workers/{worker_id}/uncordon",
    summary="Let a worker take jobs again",
    openapi_extra=role(Role.ADMIN),
    responses={200: {"model": WorkerView}, **problems("not_found")},
)
def uncordon_worker(worker_id: WorkerId, services: ServicesDep) -> Response:
    """The opposite of cordon. Asking again is harmless."""
    return _set_cordoned(services, worker_id, cordoned=False)


def _set_cordoned(services: Services, worker_id: str, *, cordoned: bool) -> Response:
    with services.database.write() as session:
        if not set_cordoned(session, worker_id, cordoned=cordoned):
            raise NotFound("worker", worker_id)
    services.hosts.forget()
    services.bell.ring(CHANNEL_WANTED)
    return json_response(next(_worker(host) for host in services.hosts.get() if host.worker_id == worker_id))


def _jobs_of(services: Services, project_id: str, hosts: list[HostView]) -> frozenset[str]:
    held = {device.job_id for host in hosts for device in host.devices if device.job_id is not None}
    if not held:
        return frozenset()
    with services.database.read() as session:
        return frozenset(session.scalars(select(Job.id).where(Job.id.in_(held), Job.project_id == project_id)))


def _whole_list(data: list[dict[str, Any]]) -> Response:
    return json_response({"object": "list", "data": data, "has_more": False, "next_after": None})


def _device(host: HostView, device: DeviceView, mine: frozenset[str]) -> dict[str, Any]:
    shown = device.job_id in mine
    return {
        "id": device.id,
        "object": "device",
        "worker_id": host.worker_id,
        "host_name": host.host_name,
        "kind": device.kind,
        "name": device.name,
        "position": device.position,
        "memory_bytes": device.memory_bytes,
        "pci_bus_id": device.pci_bus_id,
        "simulated": device.simulated,
        "health": device.health,
        "reason": device.reason,
        "state": state_of(host, device),
        "threads": device.threads,
        "job_id": device.job_id if shown else None,
        "attempt": device.attempt if shown else None,
    }


def _worker(host: HostView) -> dict[str, Any]:
    return {
        "id": host.worker_id,
        "object": "worker",
        "host_id": host.host_id,
        "host_name": host.host_name,
        "online": host.online,
        "cordoned": host.cordoned,
        "reason": host.reason,
        "frameworks": sorted(host.frameworks),
        "version": host.version,
        "started_at": to_rfc3339(host.started_at) if host.started_at else None,
        "heartbeat_at": to_rfc3339(host.heartbeat_at) if host.heartbeat_at else None,
        "devices": [device.id for device in host.devices],
    }
