"""Writes up how a host's devices are: their last readings, since when they are idle, what holds have used."""

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Final

import structlog
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from app.db import Database, DatabaseDown
from app.fleet.models import Device
from app.holds.models import Hold
from app.holds.repository import HeldDevices, held_devices
from workers.telemetry import Look

log = structlog.get_logger("worker")

_NEVER_S: Final = float("inf")


class DeviceBoard:
    """Of one host; `worker_id` answers None until it is registered, `cards` its real and simulated cards.

    `idle_after_s`: from when on a held card is shown as idle; 0 is never. A hold that is to end sooner than that is
    shown sooner, since its end is decided by what is written here.
    """

    def __init__(
        self,
        database: Database,
        worker_id: Callable[[], str | None],
        cards: Callable[[], Sequence[str]],
        idle_after_s: float,
    ) -> None:
        self._database = database
        self._worker_id = worker_id
        self._cards = cards
        self._idle_after_s = idle_after_s or _NEVER_S
        self._holds: list[HeldDevices] = []

    def cards(self) -> Sequence[str]:
        return self._cards()

    def holds(self) -> Sequence[HeldDevices]:
        """The open holds; those known last while the database does not answer."""
        worker_id = self._worker_id()
        if worker_id is not None:
            try:
                with self._database.read() as session:
                    self._holds = held_devices(session, worker_id)
            except DatabaseDown:
                log.warning("holds_not_read")
        return self._holds

    def write(self, look: Look) -> bool:
        worker_id = self._worker_id()
        if worker_id is None:
            return False
        try:
            with self._database.write() as session:
                self._write(session, worker_id, look, self._database.now(session))
        except DatabaseDown:
            log.warning("readings_not_written")
            return False
        return True

    def _write(self, session: Session, worker_id: str, look: Look, now: datetime) -> None:
        """Rows by id, devices before holds, so that nobody is met in another order."""
        query = select(Device.id).where(Device.worker_id == worker_id).order_by(Device.id).with_for_update()
        patience_s = self._patience_s()
        for device_id in session.execute(query).scalars().all():
            if device_id in look.readings:
                self._write_device(session, device_id, look, patience_s.get(device_id, self._idle_after_s), now)
        mute = (Device.worker_id == worker_id) & Device.idle_since.is_not(None) & Device.id.not_in(look.readings)
        session.execute(update(Device).where(mute).values(idle_since=None))
        for hold_id, joules in sorted(look.hold_energy_j.items()):
            so_far = func.coalesce(Hold.energy_j, 0.0)
            session.execute(update(Hold).where(Hold.id == hold_id).values(energy_j=so_far + joules))

    def _write_device(self, session: Session, device_id: str, look: Look, patience_s: float, now: datetime) -> None:
        idle_s = look.idle_s.get(device_id, 0.0)
        # Kept as it was written first: computed anew at each look it would tremble.
        since = func.coalesce(Device.idle_since, now - timedelta(seconds=idle_s)) if idle_s >= patience_s else None
        session.execute(
            update(Device)
            .where(Device.id == device_id)
            .values(readings=look.readings[device_id], readings_at=now, idle_since=since)
            .execution_options(synchronize_session=False)
        )

    def _patience_s(self) -> dict[str, float]:
        """How long a card may be idle before that is written up, where a hold asks for less than the setting."""
        return {
            card: min(self._idle_after_s, hold.stop_when_idle_s)
            for hold in self._holds
            if hold.stop_when_idle_s is not None
            for card in hold.cards
        }
