"""Rows of devices and what they are seen as: health, quarantine, other people's processes."""

from dataclasses import replace
from datetime import timedelta

from app.db import Database
from app.fleet.devices import DeviceFacts, DeviceProcess, lift_quarantine, quarantine, record_devices
from app.fleet.models import Device, Lease, Worker
from app.fleet.repository import DeviceView, fleet
from tests.fakes import START, FakeClock
from tests.rows import add_worker

CARD = DeviceFacts(id="host-a-0", kind="cuda", name="Card", position=0)
ANA = DeviceProcess(4711, "ana", "python", 9 << 30)
USED = replace(CARD, health="in_use_elsewhere", reason="In use by process 4711.", processes=(ANA,))
SICK = replace(CARD, health="unhealthy", reason="Xid 79")


def worker(database: Database) -> Worker:
    with database.write() as session:
        return add_worker(session)


def record(database: Database, worker_id: str, clock: FakeClock, *devices: DeviceFacts, **why: str) -> None:
    with database.write() as session:
        record_devices(session, worker_id, devices, clock.now(), **why)


def view(database: Database, clock: FakeClock) -> DeviceView:
    with database.read() as session:
        return fleet(session, clock.now(), 3600)[0].devices[0]


class TestHealth:
    def test_it_is_what_was_seen_last_since_it_was_first_seen(self, database: Database, clock: FakeClock) -> None:
        worker_id = worker(database).id
        record(database, worker_id, clock, CARD)
        assert (view(database, clock).health, view(database, clock).health_at) == ("ok", None)
        fell_ill = clock.advance(10)
        for _ in range(2):
            record(database, worker_id, clock, SICK)
            clock.advance(10)
        shown = view(database, clock)
        assert (shown.health, shown.reason, shown.health_at) == ("unhealthy", "Xid 79", fell_ill)
        record(database, worker_id, clock, CARD)
        shown = view(database, clock)
        assert (shown.health, shown.reason, shown.health_at) == ("ok", None, clock.now())

    def test_a_device_that_is_not_listed_is_gone_with_what_is_known(self, database: Database, clock: FakeClock) -> None:
        worker_id = worker(database).id
        record(database, worker_id, clock, USED)
        record(database, worker_id, clock, missing_because="GPU is lost.")
        shown = view(database, clock)
        assert (shown.health, shown.processes) == ("gone", ())
        assert shown.reason == "The host no longer lists this device. GPU is lost."

    def test_processes_are_kept_as_they_were_told(self, database: Database, clock: FakeClock) -> None:
        worker_id = worker(database).id
        record(database, worker_id, clock, USED)
        (process,) = view(database, clock).processes
        assert process == {
            "pid": 4711,
            "user": "ana",
            "name": "python",
            "memory_bytes": 9 << 30,
            "kind": "compute",
        }
        assert not view(database, clock).usable


class TestQuarantine:
    def test_it_hides_what_is_seen_and_a_release_shows_it(self, database: Database, clock: FakeClock) -> None:
        worker_id = worker(database).id
        record(database, worker_id, clock, SICK)
        began = clock.advance(5)
        with database.write() as session:
            assert quarantine(session, ["host-a-0"], "it failed", began) == 1
        clock.advance(5)
        record(database, worker_id, clock, SICK)
        shown = view(database, clock)
        assert (shown.health, shown.reason, shown.health_at) == ("quarantined", "it failed", began)
        with database.write() as session:
            assert lift_quarantine(session, "host-a-0")
            assert lift_quarantine(session, "host-a-0"), "again is harmless"
            assert not lift_quarantine(session, "GPU-none")
        assert (view(database, clock).health, view(database, clock).reason) == ("unhealthy", "Xid 79")

    def test_one_that_is_gone_is_gone_and_comes_back_in_quarantine(self, database: Database, clock: FakeClock) -> None:
        worker_id = worker(database).id
        with database.write() as session:
            quarantine(session, ["host-a-0"], "it failed", START)
        record(database, worker_id, clock)
        assert view(database, clock).health == "gone"
        record(database, worker_id, clock, CARD)
        assert view(database, clock).health == "quarantined"

    def test_leases_and_epochs_are_not_touched(self, database: Database, clock: FakeClock) -> None:
        worker_id = worker(database).id
        until = clock.now() + timedelta(seconds=60)
        with database.write() as session:
            session.get_one(Device, "host-a-0").epoch = 7
            facts = {"worker_id": worker_id, "job_id": "job_1", "attempt": 1, "epoch": 7, "expires_at": until}
            session.add(Lease(device_id="host-a-0", **facts))
        record(database, worker_id, clock, SICK)
        with database.write() as session:
            quarantine(session, ["host-a-0"], "it failed", START)
        shown = view(database, clock)
        assert (shown.job_id, shown.epoch, shown.free) == ("job_1", 7, False)


class TestDescription:
    def test_a_process_is_told_with_what_is_known_of_it(self) -> None:
        assert str(ANA) == "process 4711 (python, user ana)"
        assert str(DeviceProcess(7, name="python")) == "process 7 (python)"
        assert str(DeviceProcess(7)) == "process 7"
