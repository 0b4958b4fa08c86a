"""A host registers, beats, restarts and leaves."""

from dataclasses import replace

import pytest

from app.db import Database
from app.fleet.condition import Condition, Remark
from app.fleet.models import Device, Lease, Worker
from app.fleet.registry import (
    DeviceElsewhere,
    DeviceFacts,
    HostReport,
    SqliteOneHost,
    WorkerFacts,
    heartbeat,
    register,
    release,
    report,
    set_cordoned,
    set_draining,
    set_offline,
)
from app.fleet.repository import HostView, fleet
from tests.fakes import START, FakeClock
from tests.jobs.placing import make_scene

FACTS = WorkerFacts(
    host_id="box-1", host_name="box", instance="i-1", boot_id="b-1", version="1", frameworks={"torch": {"version": "2"}}
)
CARD = DeviceFacts(id="GPU-1", kind="cuda", name="Card", position=0, memory_bytes=16, pci_bus_id="00000000:01:00.0")


def add(database: Database, facts: WorkerFacts = FACTS, *devices: DeviceFacts) -> str:
    with database.write() as session:
        return register(session, facts, devices, START)


def view(database: Database, clock: FakeClock) -> list[HostView]:
    with database.read() as session:
        return fleet(session, clock.now(), offline_after_s=15)


class TestRegister:
    def test_a_host_keeps_its_worker_id_over_restarts(self, database: Database, clock: FakeClock) -> None:
        first = add(database, FACTS, CARD)
        again = add(database, replace(FACTS, instance="i-2"), CARD)
        assert first == again
        (host,) = view(database, clock)
        assert (host.host_id, host.online, host.frameworks) == ("box-1", True, frozenset({"torch"}))
        assert [(d.id, d.free, d.pci_bus_id) for d in host.devices] == [("GPU-1", True, "00000000:01:00.0")]

    def test_a_device_that_vanished_stays_known_and_is_not_usable(self, database: Database, clock: FakeClock) -> None:
        add(database, FACTS, CARD, replace(CARD, id="GPU-2", position=1))
        add(database, replace(FACTS, instance="i-2"), CARD)
        (host,) = view(database, clock)
        assert {d.id: (d.health, d.free) for d in host.devices} == {"GPU-1": ("ok", True), "GPU-2": ("gone", False)}

    @pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
    def test_a_second_host_is_refused_on_sqlite_while_the_first_is_online(
        self, database: Database, clock: FakeClock
    ) -> None:
        add(database, FACTS, CARD)
        other = replace(FACTS, host_id="box-2", host_name="second")
        with pytest.raises(SqliteOneHost, match="'box' is online with this SQLite database"):
            add(database, other)
        assert [host.host_id for host in view(database, clock)] == ["box-1"]
        with database.write() as session:
            register(session, other, [], clock.advance(61))
        assert [host.host_id for host in view(database, clock)] == ["box-1", "box-2"]

    @pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
    def test_a_device_may_move_to_another_host_unless_it_is_leased(self, database: Database, clock: FakeClock) -> None:
        scene = make_scene(database, clock)
        other = replace(FACTS, host_id="box-2")
        scene.run()
        with pytest.raises(DeviceElsewhere, match=f"leased to {scene.job_id} .* TRAINSHED_HOST_ID"):
            add(database, other, replace(CARD, id="host-a-0"))
        with database.write() as session:
            session.query(Lease).delete()
        worker_id = add(database, other, replace(CARD, id="host-a-0"))
        with database.read() as session:
            assert session.get_one(Device, "host-a-0").worker_id == worker_id


class TestHeartbeat:
    def test_it_renews_what_it_holds(self, database: Database, clock: FakeClock) -> None:
        scene = make_scene(database, clock)
        scene.run()
        clock.advance(30)
        with database.write() as session:
            beat = heartbeat(session, scene.worker_id, "instance-1", clock.now(), 60)
        assert beat.current
        assert beat.renewed == {(scene.job_id, 1)}
        with database.read() as session:
            lease = session.get_one(Lease, "host-a-0")
        assert (lease.expires_at - clock.now()).total_seconds() == 60

    def test_it_does_not_revive_a_lease_that_ran_out(self, database: Database, clock: FakeClock) -> None:
        scene = make_scene(database, clock)
        scene.run()
        clock.advance(61)
        with database.write() as session:
            assert heartbeat(session, scene.worker_id, "instance-1", clock.now(), 60).renewed == set()

    def test_unless_the_host_has_judged_it_by_its_own_clock(self, database: Database, clock: FakeClock) -> None:
        scene = make_scene(database, clock)
        scene.run()
        clock.advance(300)
        with database.write() as session:
            beat = heartbeat(session, scene.worker_id, "instance-1", clock.now(), 60, ended_too=True)
        assert beat.renewed == {(scene.job_id, 1)}
        with database.write() as session:
            release(session, scene.job_id, 1)
            assert heartbeat(session, scene.worker_id, "instance-1", clock.now(), 60, ended_too=True).renewed == set()

    def test_an_older_instance_is_told_to_leave(self, database: Database, clock: FakeClock) -> None:
        worker_id = add(database)
        add(database, replace(FACTS, instance="i-2"))
        with database.write() as session:
            assert not heartbeat(session, worker_id, "i-1", clock.now(), 60).current
            assert heartbeat(session, worker_id, "i-2", clock.now(), 60).current

    def test_a_silent_host_counts_as_offline_until_it_beats_again(self, database: Database, clock: FakeClock) -> None:
        worker_id = add(database)
        clock.advance(15.5)
        assert [host.online for host in view(database, clock)] == [False]
        with database.write() as session:
            heartbeat(session, worker_id, "i-1", clock.now(), 60)
        assert [host.online for host in view(database, clock)] == [True]


class TestLeaving:
    def test_offline_and_cordoned_are_two_things(self, database: Database, clock: FakeClock) -> None:
        worker_id = add(database)
        with database.write() as session:
            assert set_cordoned(session, worker_id, cordoned=True)
            assert not set_cordoned(session, "wrk_unknown", cordoned=True)
        (host,) = view(database, clock)
        assert (host.online, host.cordoned) == (True, True)
        with database.write() as session:
            set_offline(session, worker_id, "i-0", clock.now())
        assert view(database, clock)[0].online, "an older instance cannot take the newer one off"
        with database.write() as session:
            set_offline(session, worker_id, "i-1", clock.now())
        assert not view(database, clock)[0].online
        with database.read() as session:
            assert session.get_one(Worker, worker_id).cordoned, "a restart does not lift a cordon"

    def test_a_worker_that_leaves_renews_and_stays_offline(self, database: Database, clock: FakeClock) -> None:
        scene = make_scene(database, clock)
        scene.run()
        with database.write() as session:
            set_offline(session, scene.worker_id, "instance-1", clock.now())
            beat = heartbeat(session, scene.worker_id, "instance-1", clock.now(), 60)
        assert beat.renewed == {(scene.job_id, 1)}
        assert not view(database, clock)[0].online, "it would be given jobs that it never claims"
        add(database, replace(FACTS, host_id="host-a"))
        assert view(database, clock)[0].online


class TestDrain:
    def test_it_cordons_and_is_told_with_each_beat_until_it_is_taken_back(
        self, database: Database, clock: FakeClock
    ) -> None:
        worker_id = add(database)

        def draining() -> bool:
            with database.write() as session:
                return heartbeat(session, worker_id, "i-1", clock.now(), 60).draining

        assert not draining()
        with database.write() as session:
            assert set_draining(session, worker_id, clock.now())
            assert not set_draining(session, "wrk_unknown", clock.now())
        assert draining()
        (host,) = view(database, clock)
        assert (host.cordoned, host.drain_requested_at) == (True, clock.now())
        add(database, replace(FACTS, instance="i-1"))
        assert draining(), "a restart does not end it"
        with database.write() as session:
            set_cordoned(session, worker_id, cordoned=True)
        assert draining(), "nor does another cordon"
        with database.write() as session:
            set_cordoned(session, worker_id, cordoned=False)
        assert not draining()
        assert view(database, clock)[0].drain_requested_at is None


class TestReport:
    FULL = Condition(blockers=(Remark("disk_full", "The disk is full."),))

    def test_it_replaces_devices_reason_and_condition(self, database: Database, clock: FakeClock) -> None:
        worker_id = add(database, FACTS, CARD)
        with database.write() as session:
            seen = HostReport((replace(CARD, id="GPU-2"),), "GPU is lost.", self.FULL)
            assert report(session, worker_id, "i-1", seen, clock.now())
        (host,) = view(database, clock)
        assert (host.reason, host.blocked) == ("GPU is lost.", "The disk is full.")
        assert {device.id: device.health for device in host.devices} == {"GPU-1": "gone", "GPU-2": "ok"}

    def test_without_devices_their_rows_stay(self, database: Database, clock: FakeClock) -> None:
        worker_id = add(database, FACTS, CARD)
        with database.write() as session:
            assert report(session, worker_id, "i-1", HostReport(None, "blind", Condition()), clock.now())
        (host,) = view(database, clock)
        assert (host.reason, host.blocked, host.devices[0].health) == ("blind", None, "ok")

    def test_an_older_instance_writes_nothing(self, database: Database, clock: FakeClock) -> None:
        worker_id = add(database, FACTS, CARD)
        with database.write() as session:
            assert not report(session, worker_id, "i-0", HostReport((), "old", self.FULL), clock.now())
        (host,) = view(database, clock)
        assert (host.reason, host.blocked, host.devices[0].health) == (None, None, "ok")

    def test_a_registration_has_the_condition_too(self, database: Database, clock: FakeClock) -> None:
        add(database, replace(FACTS, condition=self.FULL))
        assert view(database, clock)[0].blocked == "The disk is full."
