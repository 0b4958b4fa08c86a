"""One scheduling pass: read queue and fleet, plan, and write the placements, in one transaction.

Passes take turns by a lock in the database, so several control processes may run. The lease's primary key is the
device: if the plan were ever wrong, the database would refuse the second holder and roll everything back.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from app.db import Database, lock_key
from app.fleet.models import Device, Lease
from app.fleet.repository import DeviceView, HostView, fleet
from app.jobs.lifecycle import move
from app.jobs.models import Attempt, AttemptNode, Job
from app.jobs.states import JobState
from app.scheduling.plan import Placement, plan
from app.scheduling.queue import any_ready, waiting_jobs

PASS_LOCK: Final = 7_301_002


@dataclass(frozen=True)
class Times:
    """Seconds: how long a worker has to claim, how long a lease lasts, when a silent host counts as offline."""

    claim_s: float
    lease_s: float
    offline_after_s: float


@dataclass(frozen=True)
class Placed:
    """A placement that is committed; its worker is to be told."""

    job_id: str
    attempt: int
    worker_id: str


def schedule(database: Database, times: Times) -> list[Placed]:
    """Run one pass; answers what was placed.

    It plans on a snapshot first and takes the write lock only when something can start: with a long queue and no free
    device, passes cost submitters nothing.
    """
    with database.read() as session:
        if not _decide(session, database.now(session), times)[1]:
            return []
    with database.write() as session:
        lock_key(session, PASS_LOCK)
        now = database.now(session)
        hosts, placements = _decide(session, now, times)
        written = [(placement, _write(session, placement, hosts, now, times)) for placement in placements]
        placed = {found: placement.device_ids for placement, found in written if found is not None}
        # After all jobs and by device id, over all placements: a host that registers locks its devices in that order.
        chosen = {device_id: found for found, device_ids in placed.items() for device_id in device_ids}
        for device_id, found in sorted(chosen.items(), key=lambda pair: pair[0]):
            holder = (found.job_id, found.attempt)
            lease_device(session, device_id, found.worker_id, holder, now + timedelta(seconds=times.lease_s))
        return list(placed)


def _decide(session: Session, now: datetime, times: Times) -> tuple[list[HostView], list[Placement]]:
    if not any_ready(session, now):
        return [], []
    hosts = fleet(session, now, times.offline_after_s)
    if not any(device.free for host in hosts if host.online for device in host.devices):
        return hosts, []
    return hosts, plan(waiting_jobs(session, now), hosts, now).placements


def _write(session: Session, placement: Placement, hosts: list[HostView], now: datetime, times: Times) -> Placed | None:
    host = next(host for host in hosts if host.worker_id == placement.worker_id)
    devices = {device.id: device for device in host.devices}
    chosen = [devices[device_id] for device_id in placement.device_ids]
    before = session.execute(select(Job.attempt).where(Job.id == placement.job_id)).scalar_one()
    number = before + 1
    moved = move(
        session,
        placement.job_id,
        JobState.STARTING,
        attempt=before,
        next_attempt=number,
        now=now,
        facts={"worker": host.host_name, "devices": list(placement.device_ids)},
        fields=dict.fromkeys(("cause", "cause_detail")),
    )
    if not moved:
        return None
    claim_by = now + timedelta(seconds=times.claim_s)
    session.execute(
        insert(Attempt).values(job_id=placement.job_id, number=number, placed_at=now, claim_by=claim_by, hinted_at=now)
    )
    session.execute(
        insert(AttemptNode).values(
            job_id=placement.job_id,
            attempt=number,
            worker_id=placement.worker_id,
            devices=[device_json(device) for device in chosen],
        )
    )
    return Placed(placement.job_id, number, placement.worker_id)


def lease_device(
    session: Session, device_id: str, worker_id: str, holder: tuple[str, int], expires_at: datetime
) -> None:
    """Give a free device to a job's attempt, or to a hold (with attempt 0). Several are to be taken by device id."""
    epoch = session.execute(
        update(Device)
        .where(Device.id == device_id)
        .values(epoch=Device.epoch + 1)
        .returning(Device.epoch)
        .execution_options(synchronize_session=False)
    ).scalar_one()
    session.execute(
        insert(Lease).values(
            device_id=device_id,
            worker_id=worker_id,
            job_id=holder[0],
            attempt=holder[1],
            epoch=epoch,
            expires_at=expires_at,
        )
    )


def device_json(device: DeviceView) -> dict[str, object]:
    """What is kept of a device with those who have it."""
    return {
        "id": device.id,
        "kind": device.kind,
        "name": device.name,
        "pci_bus_id": device.pci_bus_id,
        "memory_bytes": device.memory_bytes,
        "simulated": device.simulated,
    }
