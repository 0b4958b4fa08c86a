"""A pass and a reconciliation against the heartbeat and the registration of a host, at the moment that matters."""

import pytest
from sqlalchemy import text

from app.db import Database
from app.fleet.devices import quarantine
from app.fleet.models import Device
from app.fleet.registry import heartbeat
from app.jobs.states import JobState
from app.scheduling.reconcile import Settled, reconcile
from app.scheduling.run import schedule
from tests.fakes import FakeClock
from tests.jobs.placing import TIMES, make_scene
from tests.jobs.waiting_for_locks import Meanwhile

pytestmark = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


def test_a_lease_that_is_being_renewed_is_not_taken(database: Database, clock: FakeClock) -> None:
    """The host counts on its answer: it goes on for another lease, on a device that was given away otherwise."""
    scene = make_scene(database, clock)
    scene.run()
    just_in_time = clock.advance(TIMES.lease_s - 0.1)
    settled: list[Settled] = []
    meanwhile = Meanwhile(lambda: settled.extend(reconcile(database, TIMES)))
    with database.write() as session:
        beat = heartbeat(session, scene.worker_id, "instance-1", just_in_time, TIMES.lease_s)
        clock.advance(0.2)
        with meanwhile.running(database):
            session.commit()
    assert (beat.renewed, settled, meanwhile.error) == ({(scene.job_id, 1)}, [], None)
    assert scene.state() is JobState.RUNNING


def test_a_pass_and_a_registration_lock_devices_in_one_order(database: Database, clock: FakeClock) -> None:
    scene = make_scene(database, clock, devices=2, device_name="second")
    scene.add_job()
    with database.write() as session:
        session.get_one(Device, "host-a-1").name = "second card"
    meanwhile = Meanwhile(lambda: schedule(database, TIMES))
    with database.write() as session:
        # As a registration does: one device after the other, by id.
        session.get_one(Device, "host-a-0").seen_at = clock.now()
        session.get_one(Device, "host-a-0").threads = 2
        session.flush()
        with meanwhile.running(database):
            session.get_one(Device, "host-a-1").threads = 2
            session.flush()
            session.commit()
    assert meanwhile.error is None
    assert scene.state() is JobState.STARTING


def test_a_quarantine_and_a_registration_lock_devices_in_one_order(database: Database, clock: FakeClock) -> None:
    make_scene(database, clock, devices=2)
    with database.write() as session:
        # PostgreSQL puts the changed row behind the other one, and would come by it last.
        session.get_one(Device, "host-a-0").threads = 3

    def keep_out() -> None:
        with database.write() as session:
            for scan in ("indexscan", "bitmapscan"):  # whatever plan is chosen
                session.execute(text(f"SET LOCAL enable_{scan} = off"))
            quarantine(session, ["host-a-1", "host-a-0"], "it failed", clock.now())

    meanwhile = Meanwhile(keep_out)
    with database.write() as session:
        session.get_one(Device, "host-a-0").threads = 2
        session.flush()
        with meanwhile.running(database):
            session.get_one(Device, "host-a-1").threads = 2
            session.flush()
            session.commit()
    assert meanwhile.error is None
    with database.read() as session:
        assert [session.get_one(Device, f"host-a-{n}").quarantine_reason for n in (0, 1)] == ["it failed"] * 2
