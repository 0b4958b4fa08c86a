"""The rows of devices: what a host lists now, what it no longer lists, and what is kept out of use until released."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from app.errors import Conflict
from app.fleet.models import Device, Lease

OK: Final = "ok"
UNHEALTHY: Final = "unhealthy"
GONE: Final = "gone"
IN_USE_ELSEWHERE: Final = "in_use_elsewhere"
QUARANTINED: Final = "quarantined"

_REASON_CHARACTERS: Final = 1000
_NOT_LISTED: Final = "The host no longer lists this device."


@dataclass(frozen=True)
class DeviceProcess:
    """A process on a device that is none of ours. None is what could not be found out; `kind`: compute or graphics."""

    pid: int
    user: str | None = None
    name: str | None = None
    memory_bytes: int | None = None
    kind: str = "compute"

    def __str__(self) -> str:
        known = [self.name, self.user and f"user {self.user}"]
        detail = ", ".join(part for part in known if part)
        return f"process {self.pid} ({detail})" if detail else f"process {self.pid}"


@dataclass(frozen=True)
class DeviceFacts:
    """A device as the inventory found it; `kind` is `cuda` or `cpu` (a simulated card is `cuda` and `simulated`).

    `health` is what was seen: ok, unhealthy or in_use_elsewhere. A quarantine is not the inventory's to say or to end.
    """

    id: str
    kind: str
    name: str
    position: int
    pci_bus_id: str | None = None
    memory_bytes: int | None = None
    threads: int = 1
    simulated: bool = False
    health: str = OK
    reason: str | None = None
    processes: tuple[DeviceProcess, ...] = ()


class DeviceElsewhere(Conflict):
    """Another host holds a lease on a device with this id; two hosts must not share an id."""

    code = "device_elsewhere"


def record_devices(
    session: Session,
    worker_id: str,
    devices: Sequence[DeviceFacts],
    now: datetime,
    *,
    missing_because: str | None = None,
) -> None:
    """Write what the host has now; what it had before and has no longer stays, marked `gone`.

    `missing_because` is what is known about why a device may be missing. Rows are locked by id, so that two who write
    them never wait for each other.

    Raises:
        DeviceElsewhere: a device id is leased by another host.
    """
    present = {device.id for device in devices}
    mine_or_listed = (Device.worker_id == worker_id) | Device.id.in_(present)
    rows = session.execute(select(Device).where(mine_or_listed).order_by(Device.id).with_for_update()).scalars()
    known = {row.id: row for row in rows}
    for row in known.values():
        if row.worker_id == worker_id and row.id not in present:
            _set_health(row, GONE, " ".join(filter(None, (_NOT_LISTED, missing_because))), now)
            row.processes = None
    for facts in devices:
        row = known.get(facts.id) or Device(id=facts.id, epoch=0)
        if row.worker_id not in (None, worker_id):
            _move_host(session, row, worker_id)
        row.worker_id, row.position, row.kind, row.name = worker_id, facts.position, facts.kind, facts.name
        row.pci_bus_id, row.memory_bytes = facts.pci_bus_id, facts.memory_bytes
        row.threads, row.simulated, row.seen_at = facts.threads, facts.simulated, now
        row.processes = [asdict(process) for process in facts.processes] or None
        _set_health(row, facts.health, facts.reason, now)
        session.add(row)
    session.flush()


def quarantine(session: Session, device_ids: Sequence[str], reason: str, now: datetime) -> int:
    """Keep devices out of use until they are released, over restarts too; answers how many there are.

    What runs on them goes on. Again: the newer reason and time count. Rows are locked by id, as in `record_devices`.
    """
    session.execute(select(Device.id).where(Device.id.in_(device_ids)).order_by(Device.id).with_for_update())
    changed = session.execute(
        update(Device)
        .where(Device.id.in_(device_ids))
        .values(quarantined_at=now, quarantine_reason=reason[:_REASON_CHARACTERS])
        .returning(Device.id)
        .execution_options(synchronize_session=False)
    ).all()
    return len(changed)


def lift_quarantine(session: Session, device_id: str) -> bool:
    """Let a device be used again if it is well; harmless when it was not kept out. False: there is no such device."""
    changed = session.execute(
        update(Device)
        .where(Device.id == device_id)
        .values(quarantined_at=None, quarantine_reason=None)
        .returning(Device.id)
        .execution_options(synchronize_session=False)
    ).scalar()
    return changed is not None


def _set_health(row: Device, health: str, reason: str | None, now: datetime) -> None:
    if row.health != health:
        row.health_at = now
    row.health, row.reason = health, reason


def _move_host(session: Session, row: Device, worker_id: str) -> None:
    leased = select(Lease.job_id).where(Lease.device_id == row.id, Lease.worker_id != worker_id)
    holder = session.execute(leased).scalar()
    if holder is not None:
        raise DeviceElsewhere(
            f"Device {row.id} is leased to {holder} by worker {row.worker_id}. Each host needs device ids of its own; "
            "two hosts with one machine id need TRAINSHED_HOST_ID, for example TRAINSHED_HOST_ID=gpu-box-2. "
            "If it is that host under a new id, cancel the job or give the hold back."
        )
