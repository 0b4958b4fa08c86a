"""The fleet as the scheduler and the API see it: hosts, their devices, and who holds what."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.fleet.condition import first_blocker, root_state
from app.fleet.devices import GONE, IN_USE_ELSEWHERE, OK, QUARANTINED
from app.fleet.models import Device, Lease, Worker

HOLD_PREFIX: Final = "hold_"


@dataclass(frozen=True)
class DeviceView:
    """One device; `free` means it can be leased now: healthy and held by nobody.

    It is held by a job (`job_id`, `attempt`) or by a person (`hold_id`), never by both. `health` is one of ok,
    unhealthy, gone, in_use_elsewhere, quarantined, with its `reason` and, in `health_at`, since when. `processes` are
    those of others; on a device that a person holds they are that person's, and the device is well.
    """

    id: str
    kind: str
    name: str
    position: int
    memory_bytes: int | None
    pci_bus_id: str | None
    simulated: bool
    health: str
    reason: str | None
    threads: int = 1
    epoch: int = 0
    job_id: str | None = None
    attempt: int | None = None
    expires_at: datetime | None = None
    hold_id: str | None = None
    health_at: datetime | None = None
    quarantined_at: datetime | None = None
    processes: tuple[dict[str, Any], ...] = ()
    readings: dict[str, Any] | None = None
    readings_at: datetime | None = None
    idle_since: datetime | None = None

    @property
    def is_slice(self) -> bool:
        """Whether it is a MIG slice of a card; a CUDA process sees at most one, and then nothing else."""
        return self.id.startswith("MIG-")

    @property
    def usable(self) -> bool:
        return self.health == OK

    @property
    def free(self) -> bool:
        return self.usable and self.job_id is None and self.hold_id is None


@dataclass(frozen=True)
class HostView:
    """One host; `online` when its worker was heard within the time given to `fleet`."""

    worker_id: str
    host_id: str
    host_name: str
    online: bool
    cordoned: bool
    reason: str | None
    frameworks: frozenset[str]
    devices: tuple[DeviceView, ...]
    version: str = ""
    started_at: datetime | None = None
    heartbeat_at: datetime | None = None
    drain_requested_at: datetime | None = None
    condition: dict[str, Any] = field(default_factory=dict)

    @property
    def blocked(self) -> str | None:
        """Why the host takes nothing new although its worker is well: the first blocker that it reported."""
        return first_blocker(self.condition)

    def reads(self, data_root: str | None) -> bool:
        """Whether trainers of this host can read that data root; None: nothing lies in one."""
        return data_root is None or root_state(self.condition, data_root).ok


def fleet(session: Session, now: datetime, offline_after_s: float) -> list[HostView]:
    """Every host ever registered with its devices, in a fixed order (host id, then device position)."""
    held = {lease.device_id: lease for lease in session.execute(select(Lease)).scalars()}
    devices: dict[str, list[DeviceView]] = {}
    for row in session.execute(select(Device).order_by(Device.kind.desc(), Device.position, Device.id)).scalars():
        devices.setdefault(row.worker_id, []).append(_device(row, held.get(row.id)))
    heard = now - timedelta(seconds=offline_after_s)
    return [
        HostView(
            worker_id=worker.id,
            host_id=worker.host_id,
            host_name=worker.host_name,
            online=worker.state == "online" and worker.heartbeat_at >= heard,
            cordoned=worker.cordoned,
            reason=worker.reason,
            frameworks=frozenset(worker.frameworks),
            devices=tuple(devices.get(worker.id, ())),
            version=worker.version,
            started_at=worker.started_at,
            heartbeat_at=worker.heartbeat_at,
            drain_requested_at=worker.drain_requested_at,
            condition=worker.condition or {},
        )
        for worker in session.execute(select(Worker).order_by(Worker.host_id)).scalars()
    ]


def _device(row: Device, lease: Lease | None) -> DeviceView:
    held = lease is not None and lease.job_id.startswith(HOLD_PREFIX)
    job = None if held else lease
    health, reason, since = _health(row, held=held)
    return DeviceView(
        id=row.id,
        kind=row.kind,
        name=row.name,
        position=row.position,
        memory_bytes=row.memory_bytes,
        pci_bus_id=row.pci_bus_id,
        simulated=row.simulated,
        health=health,
        reason=reason,
        threads=row.threads,
        epoch=row.epoch,
        job_id=job.job_id if job else None,
        attempt=job.attempt if job else None,
        expires_at=lease.expires_at if lease else None,
        hold_id=lease.job_id if lease and held else None,
        health_at=since,
        quarantined_at=row.quarantined_at,
        processes=tuple(row.processes or ()),
        readings=row.readings,
        readings_at=row.readings_at,
        idle_since=row.idle_since,
    )


def _health(row: Device, *, held: bool) -> tuple[str, str | None, datetime | None]:
    """Health, reason and since when, of what was seen (in the row) and what was decided (the quarantine).

    Seen and decided are kept apart, so that a release shows at once what the device is like now. That processes are
    on a device that a person holds is what it is held for; the moment the hold ends, they are somebody else's.
    """
    if row.quarantined_at is not None and row.health != GONE:
        return QUARANTINED, row.quarantine_reason, row.quarantined_at
    if held and row.health == IN_USE_ELSEWHERE:
        return OK, None, row.health_at
    return row.health, row.reason, row.health_at
