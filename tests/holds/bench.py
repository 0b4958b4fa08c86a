"""A host with cards, a project, and holds taken through the real functions."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from app.db import Database
from app.fleet.models import Device, Lease, Worker
from app.holds.models import Hold
from app.holds.service import Terms, Wish, take
from tests.fakes import FakeClock
from tests.rows import add_project, add_worker

TERMS = Terms(lease_s=60, offline_after_s=30)
HOUR_S = 3600.0


@dataclass
class HoldBench:
    """One project and one worker, whose devices are `host-a-0`, `host-a-1`, …"""

    database: Database
    clock: FakeClock
    project_id: str
    worker_id: str

    def wish(self, count: int = 1, **changes: Any) -> Wish:
        values: dict[str, Any] = {
            "project_id": self.project_id,
            "owner": "ana",
            "key_id": "key_1",
            "device_count": count,
            "for_s": HOUR_S,
        }
        return Wish(**(values | changes))

    def take(self, count: int = 1, visible: Collection[str] = (), **changes: Any) -> Hold:
        with self.database.write() as session:
            return take(session, self.wish(count, **changes), self.clock.now(), TERMS, visible)

    def wait(self, seconds: float) -> None:
        """Let time pass in which the worker is heard."""
        now = self.clock.advance(seconds)
        with self.database.write() as session:
            session.get_one(Worker, self.worker_id).heartbeat_at = now

    def hold(self, hold_id: str) -> Hold:
        with self.database.read() as session:
            return session.get_one(Hold, hold_id)

    def leases(self) -> dict[str, str]:
        """Who has which device."""
        with self.database.read() as session:
            return {lease.device_id: lease.job_id for lease in session.execute(select(Lease)).scalars()}

    def set_device(self, number: int, **values: Any) -> None:
        with self.database.write() as session:
            device = session.get_one(Device, f"host-a-{number}")
            for name, value in values.items():
                setattr(device, name, value)


def make_bench(database: Database, clock: FakeClock, *, devices: int = 2, kind: str = "cuda") -> HoldBench:
    with database.write() as session:
        project = add_project(session)
        worker = add_worker(session, devices=devices, kind=kind)
        return HoldBench(database, clock, project.id, worker.id)
