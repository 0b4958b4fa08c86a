"""Taking, extending and giving back a hold; the plan decides as it does for a job that comes last.

Every function is one part of the caller's writing transaction.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal

from sqlalchemy.orm import Session

from app import ids
from app.db import lock_key
from app.errors import NotFound
from app.fleet.repository import DeviceView, HostView, fleet
from app.holds.errors import DevicesBusy, HoldEnded, InvalidHold
from app.holds.models import Hold
from app.holds.repository import told
from app.holds.upkeep import EndedWhy, end_hold, lock_hold
from app.scheduling.admission import check_possible, resolve_device_type
from app.scheduling.explain import explain
from app.scheduling.plan import Placement, WaitingJob, plan
from app.scheduling.queue import waiting_jobs
from app.scheduling.run import PASS_LOCK, device_json, lease_device

_ME: Final = "~hold"
"""Stands for the hold among the jobs of the plan, before it has an id; behind every job of the same moment."""


@dataclass(frozen=True)
class Wish:
    """What a person asks for; `host` is a host's id or name, None: any. Times in seconds, memory in bytes."""

    project_id: str
    owner: str
    key_id: str
    device_count: int
    for_s: float
    device_type: Literal["auto", "cuda", "cpu"] = "auto"
    device_name: str | None = None
    min_device_memory_bytes: int | None = None
    host: str | None = None
    note: str = ""
    stop_when_idle_s: float | None = None


@dataclass(frozen=True)
class Terms:
    """Seconds: how long a lease lasts that nobody renews, and when a silent host counts as offline."""

    lease_s: float
    offline_after_s: float


def take(session: Session, wish: Wish, now: datetime, terms: Terms, visible: Collection[str] = ()) -> Hold:
    """Lease devices of one host to a person until `now` + `for_s`; the caller has checked how long that may be.

    It comes behind the jobs that wait for the same devices, and takes nothing that is kept for one of them.

    Args:
        session: a writing session.
        wish: what is asked for.
        now: the database's time.
        terms: the times that hold for every lease.
        visible: ids of jobs that the person may be told of.

    Raises:
        InvalidHold: there is no such host.
        InsufficientDevices: no host could ever give them.
        DevicesBusy: not now; says who has them.
    """
    lock_key(session, PASS_LOCK)
    hosts = fleet(session, now, terms.offline_after_s)
    here = _named(hosts, wish.host)
    asked = _as_job(wish, hosts, here, now)
    check_possible(asked, here)
    waiting = waiting_jobs(session, now)
    placements = plan([*waiting, asked], hosts, now).placements
    found = next((placement for placement in placements if placement.job_id == _ME), None)
    if found is None:
        who = told(session, wish.project_id)
        raise DevicesBusy(explain(asked, waiting, here, now, visible=visible, holders=who).message)
    return _write(session, wish, found, hosts, now, terms)


def extend(session: Session, hold: Hold, until: datetime) -> None:
    """Move the end of an open hold, later or sooner; `hold` is locked.

    Raises:
        HoldEnded: it is over.
    """
    if hold.ended_at is not None:
        raise HoldEnded(hold.id, hold.ended_why)
    hold.until = until
    session.flush()


def give_back(session: Session, hold: Hold, now: datetime) -> None:
    """End a locked hold at its person's wish; again is harmless."""
    end_hold(session, hold, EndedWhy.RELEASED, now)


def locked(session: Session, project_id: str | None, hold_id: str) -> Hold:
    """One hold of a project, locked for a change; None as the project: of any.

    Raises:
        NotFound: there is none with this id, or it is another project's.
    """
    hold = lock_hold(session, hold_id)
    if hold is None or project_id not in (None, hold.project_id):
        raise NotFound("hold", hold_id)
    return hold


def _named(hosts: Sequence[HostView], name: str | None) -> list[HostView]:
    if name is None:
        return list(hosts)
    found = [host for host in hosts if name in (host.host_id, host.host_name, host.worker_id)]
    if not found:
        known = ", ".join(sorted(host.host_name for host in hosts)) or "none"
        raise InvalidHold("host", f"There is no host '{name}'. Known: {known}.", known)
    return found


def _as_job(wish: Wish, hosts: Sequence[HostView], here: Sequence[HostView], now: datetime) -> WaitingJob:
    return WaitingJob(
        id=_ME,
        framework=None,
        device_type=resolve_device_type(wish.device_type, hosts).device_type,
        device_count=wish.device_count,
        priority=0,
        queued_at=now,
        min_device_memory_bytes=wish.min_device_memory_bytes,
        device_name=wish.device_name,
        worker_ids=None if wish.host is None else frozenset(host.worker_id for host in here),
    )


def _write(
    session: Session, wish: Wish, found: Placement, hosts: Sequence[HostView], now: datetime, terms: Terms
) -> Hold:
    host = next(host for host in hosts if host.worker_id == found.worker_id)
    devices = {device.id: device for device in host.devices}
    hold = Hold(
        id=ids.new_id("hold"),
        project_id=wish.project_id,
        owner=wish.owner,
        key_id=wish.key_id,
        note=wish.note,
        worker_id=host.worker_id,
        devices=[_device(devices[device_id]) for device_id in found.device_ids],
        stop_when_idle_s=wish.stop_when_idle_s,
        created_at=now,
        until=now + timedelta(seconds=wish.for_s),
    )
    session.add(hold)
    session.flush()
    for device_id in sorted(found.device_ids):
        lease_device(session, device_id, host.worker_id, (hold.id, 0), now + timedelta(seconds=terms.lease_s))
    return hold


def _device(device: DeviceView) -> dict[str, Any]:
    return {**device_json(device), "threads": device.threads}
