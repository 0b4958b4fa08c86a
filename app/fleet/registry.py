"""What a host says of itself: registration, heartbeat, leaving."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, delete, select, update
from sqlalchemy.orm import Session

from app import ids
from app.errors import Conflict
from app.fleet.condition import Condition
from app.fleet.devices import DeviceElsewhere, DeviceFacts, record_devices
from app.fleet.models import Lease, Worker
from app.fleet.repository import HOLD_PREFIX

__all__ = [
    "Beat",
    "DeviceElsewhere",
    "DeviceFacts",
    "HostReport",
    "SqliteOneHost",
    "WorkerFacts",
    "heartbeat",
    "hold_leases",
    "record_devices",
    "register",
    "release",
    "report",
    "set_cordoned",
    "set_draining",
    "set_offline",
]

# A host that was not heard for so long may be an old name of this one, as after a new machine id.
_ONLINE_S: Final = 60.0


@dataclass(frozen=True)
class WorkerFacts:
    """One start of one host's worker. `frameworks` maps a name to `{"version": …, "interpreter": …}`."""

    host_id: str
    host_name: str
    instance: str
    boot_id: str
    version: str
    frameworks: Mapping[str, Any]
    reason: str | None = None
    condition: Condition | None = None


class SqliteOneHost(Conflict):
    """SQLite is one host's database: its locks, and the proofs that rest on kernel locks, do not reach a second one."""

    code = "sqlite_one_host"

    def __init__(self, other: str) -> None:
        super().__init__(
            f"The worker of host '{other}' is online with this SQLite database, which serves one host. For more "
            "set TRAINSHED_DATABASE_URL to PostgreSQL, for example postgresql+psycopg://trainshed:secret@db/trainshed."
        )
        self.other = other


@dataclass(frozen=True)
class Beat:
    """The database's answer to a heartbeat; `current` is False when another instance took this host over.

    `renewed` names attempts alone: the leases of holds are renewed too, and ask nothing of the worker. `draining`:
    somebody wants the host empty, so what runs is to stop at its next safe point.
    """

    current: bool
    renewed: set[tuple[str, int]] = field(default_factory=set)
    draining: bool = False


def register(session: Session, facts: WorkerFacts, devices: Sequence[DeviceFacts] | None, now: datetime) -> str:
    """Record the host, its worker's new instance and its devices; answers the worker's id, which the host keeps.

    Without devices, when the driver tells nothing of them, those that an earlier start wrote stay as they are.

    Raises:
        DeviceElsewhere: a device id is leased by another host.
        SqliteOneHost: another host is online, and the database is SQLite.
    """
    if session.get_bind().dialect.name == "sqlite":
        _refuse_second_host(session, facts.host_id, now)
    worker = session.execute(select(Worker).where(Worker.host_id == facts.host_id).with_for_update()).scalar()
    if worker is None:
        worker = Worker(id=ids.new_id("wrk"), host_id=facts.host_id, cordoned=False)
        session.add(worker)
    worker.host_name = facts.host_name
    worker.instance = facts.instance
    worker.boot_id = facts.boot_id
    worker.version = facts.version
    worker.frameworks = dict(facts.frameworks)
    worker.state = "online"
    worker.reason = facts.reason
    worker.condition = dict(facts.condition.as_json()) if facts.condition else None
    worker.started_at = now
    worker.heartbeat_at = now
    session.flush()
    if devices is not None:
        record_devices(session, worker.id, devices, now, missing_because=facts.reason)
    return worker.id


def _refuse_second_host(session: Session, host_id: str, now: datetime) -> None:
    heard = now - timedelta(seconds=_ONLINE_S)
    others = select(Worker.host_name).where(
        Worker.host_id != host_id, Worker.state == "online", Worker.heartbeat_at > heard
    )
    other = session.execute(others.limit(1)).scalar()
    if other is not None:
        raise SqliteOneHost(other)


@dataclass(frozen=True)
class HostReport:
    """What a worker saw at its last look at its host; `devices` is None when the driver told nothing new of them."""

    devices: tuple[DeviceFacts, ...] | None
    reason: str | None
    condition: Condition


def report(session: Session, worker_id: str, instance: str, seen: HostReport, now: datetime) -> bool:
    """Write a report; False when another instance has this host now, and then nothing is written.

    Raises:
        DeviceElsewhere: a device id is leased by another host.
    """
    found = session.execute(
        update(Worker)
        .where(Worker.id == worker_id, Worker.instance == instance)
        .values(reason=seen.reason, condition=seen.condition.as_json())
        .returning(Worker.id)
        .execution_options(synchronize_session=False)
    ).scalar()
    if found is not None and seen.devices is not None:
        record_devices(session, worker_id, seen.devices, now, missing_because=seen.reason)
    return found is not None


def heartbeat(
    session: Session, worker_id: str, instance: str, now: datetime, lease_s: float, *, ended_too: bool = False
) -> Beat:
    """Say that this instance lives, and move the end of every lease that it still holds to `now + lease_s`.

    A lease that has ended by the database's clock is renewed only with `ended_too`, which is for callers that judge
    by their own boot clock whether it may have ended: a database whose clock was set forward ends all leases at once.
    A row that is there is nobody else's, since a device is given on only when its row was deleted.
    A worker that has said that it leaves stays offline, and still renews what it has not ended yet.
    """
    found = session.execute(
        update(Worker)
        .where(Worker.id == worker_id, Worker.instance == instance)
        .values(heartbeat_at=now)
        .returning(Worker.id, Worker.drain_requested_at)
    ).one_or_none()
    if found is None:
        return Beat(current=False)
    hold_leases(session, Lease.worker_id == worker_id)
    renewable = Lease.worker_id == worker_id if ended_too else (Lease.worker_id == worker_id) & (Lease.expires_at > now)
    rows = session.execute(
        update(Lease)
        .where(renewable)
        .values(expires_at=now + timedelta(seconds=lease_s))
        .returning(Lease.job_id, Lease.attempt)
    ).all()
    return Beat(
        current=True,
        renewed={(row.job_id, row.attempt) for row in rows if not row.job_id.startswith(HOLD_PREFIX)},
        draining=found.drain_requested_at is not None,
    )


def set_offline(session: Session, worker_id: str, instance: str, now: datetime) -> None:
    """Leave in good order: nothing new is placed here until the next registration, also while heartbeats go on."""
    session.execute(
        update(Worker)
        .where(Worker.id == worker_id, Worker.instance == instance)
        .values(state="offline", heartbeat_at=now)
    )


def set_cordoned(session: Session, worker_id: str, *, cordoned: bool) -> bool:
    """Stop or allow new placements; False when there is no such worker. Allowing them also takes a drain back."""
    values: dict[str, Any] = {"cordoned": cordoned} if cordoned else {"cordoned": False, "drain_requested_at": None}
    return _change_worker(session, worker_id, values)


def set_draining(session: Session, worker_id: str, now: datetime) -> bool:
    """Stop new placements, and ask for what runs there to stop; False when there is no such worker."""
    return _change_worker(session, worker_id, {"cordoned": True, "drain_requested_at": now})


def _change_worker(session: Session, worker_id: str, values: Mapping[str, Any]) -> bool:
    changed = session.execute(
        update(Worker).where(Worker.id == worker_id).values(**values).returning(Worker.id)
    ).scalar()
    return changed is not None


def release(session: Session, job_id: str, attempt: int) -> int:
    """Free the devices of one attempt; harmless when repeated. Answers how many were held."""
    hold_leases(session, Lease.job_id == job_id, Lease.attempt == attempt)
    freed = session.execute(
        delete(Lease).where(Lease.job_id == job_id, Lease.attempt == attempt).returning(Lease.device_id)
    ).all()
    return len(freed)


def hold_leases(session: Session, *which: ColumnElement[bool]) -> None:
    """Lock leases by device id, so that two transactions that want the same ones never wait for each other."""
    session.execute(select(Lease.device_id).where(*which).order_by(Lease.device_id).with_for_update())
