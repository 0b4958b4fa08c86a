"""What ends holds when nobody gives them back: time, long idleness where that was asked for, and vanished devices."""

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import structlog
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.db import Database
from app.fleet import registry
from app.fleet.devices import GONE
from app.fleet.models import Device, Lease, Worker
from app.holds.models import Hold

log = structlog.get_logger("control")

_PATIENCE: Final = timedelta(minutes=1)
"""How long devices must have been gone before a hold of them is over."""


class EndedWhy(StrEnum):
    """Why a hold is over."""

    RELEASED = "released"
    EXPIRED = "expired"
    IDLE = "idle"
    DEVICE_GONE = "device_gone"


def expire(database: Database) -> int:
    """End every hold that is due, each in a transaction of its own; answers how many.

    A host that is silent ends none: nothing is placed there meanwhile, and what its person computes may well go on.
    """
    with database.read() as session:
        due = _due(session, database.now(session))
    ended = 0
    for hold_id in due:
        with database.write() as session:
            hold = lock_hold(session, hold_id)
            why = None if hold is None else _why(session, hold, database.now(session))
            if hold is not None and why is not None:
                end_hold(session, hold, why, database.now(session))
                log.info("hold_ended", hold_id=hold_id, why=why.value)
                ended += 1
    return ended


def lock_hold(session: Session, hold_id: str) -> Hold | None:
    """The hold's row, locked until the transaction ends; it comes before its leases in the order of locks."""
    query = select(Hold).where(Hold.id == hold_id).with_for_update().execution_options(populate_existing=True)
    return session.execute(query).scalar()


def end_hold(session: Session, hold: Hold, why: EndedWhy, now: datetime) -> None:
    """Free the devices of a locked hold; harmless when it is over already."""
    registry.release(session, hold.id, 0)
    if hold.ended_at is None:
        hold.ended_at, hold.ended_why = now, why.value
    session.flush()


def _due(session: Session, now: datetime) -> list[str]:
    holds = session.execute(select(Hold).where(Hold.ended_at.is_(None)).order_by(Hold.id)).scalars().all()
    return [hold.id for hold in holds if _why(session, hold, now) is not None]


def _why(session: Session, hold: Hold, now: datetime) -> EndedWhy | None:
    if hold.ended_at is not None:
        return None
    if hold.until <= now:
        return EndedWhy.EXPIRED
    devices = _devices(session, hold.id)
    if not devices or all(_is_gone(device, now) for device in devices):
        return EndedWhy.DEVICE_GONE if not devices or _is_heard(session, hold.worker_id) else None
    if hold.stop_when_idle_s is not None and min(_idle_s(hold, device) for device in devices) >= hold.stop_when_idle_s:
        return EndedWhy.IDLE
    return None


def _devices(session: Session, hold_id: str) -> list[Device]:
    query = select(Device).join(Lease, Lease.device_id == Device.id).where(Lease.job_id == hold_id)
    return list(session.execute(query).scalars())


def _is_gone(device: Device, now: datetime) -> bool:
    """For longer than one look that failed, or the start of a driver, may take."""
    return device.health == GONE and (device.health_at is None or now - device.health_at >= _PATIENCE)


def _is_heard(session: Session, worker_id: str) -> bool:
    """`gone` is what a worker last said; one that left says nothing new."""
    return session.execute(select(Worker.state).where(Worker.id == worker_id)).scalar() == "online"


def _idle_s(hold: Hold, device: Device) -> float:
    """For how long the device is known to have been idle in this hold: until it was last asked, not until now.

    0 when it works, or cannot be measured: a worker that is away must not end a hold that it does not look at.
    """
    if device.idle_since is None or device.readings_at is None:
        return 0.0
    return (device.readings_at - max(device.idle_since, hold.created_at)).total_seconds()
