"""Devices of all hosts, and keeping one out of use."""

from typing import Annotated, Any

import structlog
from anyio.to_thread import run_sync
from fastapi import Path, Request, Response
from sqlalchemy import select

from app.accounts.service import Principal, Role
from app.api.bodies import json_response, read_model
from app.api.fleet_views import DeviceInfo, QuarantineRequest
from app.api.openapi import json_body, problems
from app.api.routing import api_router, role
from app.api.services import PrincipalDep, Services, ServicesDep
from app.api.telemetry import state_of
from app.api.views import ListView
from app.broker import CHANNEL_WANTED
from app.clock import to_rfc3339
from app.errors import NotFound
from app.fleet.devices import lift_quarantine, quarantine
from app.fleet.repository import DeviceView, HostView
from app.holds.repository import Holder, holders
from app.jobs.models import Job

log = structlog.get_logger("trainshed.api")
router = api_router(prefix="/v1", tag="Fleet")

DeviceId = Annotated[
    str,
    Path(
        min_length=1,
        max_length=120,
        pattern=r"^[^\x00]+$",  # PostgreSQL cannot even look for a NUL
        description="The device's id, as `GET /v1/devices` has it.",
    ),
]
_EXAMPLE = {"a noisy card": {"value": {"reason": "fan is loud"}}}


@router.get("/devices", summary="List devices", responses={200: {"model": ListView[DeviceInfo]}})
def list_devices(services: ServicesDep, principal: PrincipalDep) -> Response:
    """Every device of every host, with what it can be used for now and who has it. Others' jobs are not named."""
    hosts = services.hosts.get()
    shown = _Shown(services, principal, hosts)
    data = [shown.json(host, device) for host in hosts for device in host.devices]
    return json_response({"object": "list", "data": data, "has_more": False, "next_after": None})


# Ids may hold a slash: old ones of MIG slices are MIG-GPU-<uuid>/1/0.
@router.post(
    "/devices/{device_id:path}/quarantine",
    summary="Keep a device out of use",
    openapi_extra=json_body("QuarantineRequest", _EXAMPLE) | role(Role.ADMIN),
    responses={200: {"model": DeviceInfo}, **problems("not_found", "malformed_json", "invalid_request")},
)
async def quarantine_device(
    request: Request, device_id: DeviceId, services: ServicesDep, principal: PrincipalDep
) -> Response:
    """Nothing new starts on it, over restarts too, until it is released. What runs on it goes on."""
    wanted = await read_model(request, QuarantineRequest)

    def write() -> Response:
        with services.database.write() as session:
            if not quarantine(session, [device_id], wanted.reason, services.database.now(session)):
                raise NotFound("device", device_id)
        log.warning("device_quarantined", device=device_id, reason=wanted.reason, **_who(principal))
        return _answer(services, principal, device_id)

    return await run_sync(write)


@router.post(
    "/devices/{device_id:path}/release",
    summary="Let a device be used again",
    openapi_extra=role(Role.ADMIN),
    responses={200: {"model": DeviceInfo}, **problems("not_found")},
)
def release_device(device_id: DeviceId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """End its quarantine, whoever began it. Harmless when there is none; a device that is not well stays unusable."""
    with services.database.write() as session:
        if not lift_quarantine(session, device_id):
            raise NotFound("device", device_id)
    log.warning("device_released", device=device_id, **_who(principal))
    services.bell.ring(CHANNEL_WANTED)
    return _answer(services, principal, device_id)


def _who(principal: Principal) -> dict[str, str]:
    """For the audit: whose request it was."""
    return {"user": principal.user, "project": principal.project, "key_id": principal.key_id}


def _answer(services: Services, principal: Principal, device_id: str) -> Response:
    services.hosts.forget()
    hosts = services.hosts.get()
    shown = _Shown(services, principal, hosts)
    found = next((host, device) for host in hosts for device in host.devices if device.id == device_id)
    return json_response(shown.json(*found))


def _kept_from_jobs(host: HostView) -> str | None:
    """Why nothing new starts on a host's devices although they are well."""
    return host.blocked or ("Its host is cordoned, so nothing new starts there." if host.cordoned else None)


class _Shown:
    """Devices as one principal may see them: which job has one is told within its project, which person to admins too.

    Until when a person has it is told to everybody.
    """

    def __init__(self, services: Services, principal: Principal, hosts: list[HostView]) -> None:
        devices = [device for host in hosts for device in host.devices]
        jobs = {device.job_id for device in devices if device.job_id is not None}
        self._project_id = principal.project_id
        self._sees_all = principal.role is Role.ADMIN
        self._jobs: frozenset[str] = frozenset()
        self._holders: dict[str, Holder] = {}
        if not jobs and all(device.hold_id is None for device in devices):
            return
        with services.database.read() as session:
            own = select(Job.id).where(Job.id.in_(jobs), Job.project_id == principal.project_id)
            self._jobs = frozenset(session.scalars(own))
            self._holders = holders(session)

    def json(self, host: HostView, device: DeviceView) -> dict[str, Any]:
        is_mine = device.job_id in self._jobs
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
            "reason": device.reason or (_kept_from_jobs(host) if device.usable else None),
            "health_at": to_rfc3339(device.health_at) if device.health_at else None,
            "state": state_of(host, device),
            "threads": device.threads,
            "job_id": device.job_id if is_mine else None,
            "attempt": device.attempt if is_mine else None,
            "held_by": self._held_by(device),
            "processes": list(device.processes),
            "readings": device.readings,
            "readings_at": to_rfc3339(device.readings_at) if device.readings_at else None,
            "idle_since": to_rfc3339(device.idle_since) if device.idle_since else None,
        }

    def _held_by(self, device: DeviceView) -> dict[str, Any] | None:
        holder = self._holders.get(device.hold_id or "")
        if holder is None:
            return None
        is_shown = self._sees_all or holder.project_id == self._project_id
        return {
            "hold_id": holder.hold_id if is_shown else None,
            "owner": holder.owner if is_shown else None,
            "until": to_rfc3339(holder.until),
        }
