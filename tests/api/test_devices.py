"""Devices over HTTP: what they can be used for, who has them, and keeping one out of use."""

from datetime import timedelta
from typing import Any

import pytest

from app import ids
from app.api.fleet_views import DeviceInfo
from app.api.views import ListView
from app.db import Database
from app.fleet.models import Device, Lease
from app.holds.models import Hold
from tests.api.client import ONE_DATABASE, Api, Tenant, new_tenant, problem
from tests.fakes import START, FakeClock
from tests.rows import add_worker

OTHERS = [{"pid": 4711, "user": "ana", "name": "python", "memory_bytes": 9 << 30, "kind": "compute"}]


@pytest.fixture
def worker_id(database: Database) -> str:
    """One worker online with two cards."""
    with database.write() as session:
        return add_worker(session, devices=2).id


def listed(api: Api) -> list[DeviceInfo]:
    api.services.hosts.forget()  # what the test has just written must be seen
    return ListView[DeviceInfo].model_validate(api.get("/v1/devices").json()).data


def change(database: Database, number: int = 0, **values: Any) -> None:
    with database.write() as session:
        row = session.get_one(Device, f"host-a-{number}")
        for name, value in values.items():
            setattr(row, name, value)


def lease(database: Database, worker_id: str, holder: str, attempt: int = 1) -> None:
    with database.write() as session:
        facts = {"worker_id": worker_id, "job_id": holder, "attempt": attempt, "epoch": 1}
        session.add(Lease(device_id="host-a-0", expires_at=START + timedelta(seconds=60), **facts))


def hold(database: Database, worker_id: str, tenant: Tenant) -> str:
    identity = ids.new_id("hold")
    until = START + timedelta(hours=4)
    with database.write() as session:
        facts = {"project_id": tenant.project_id, "owner": "ana", "key_id": "k", "worker_id": worker_id}
        session.add(Hold(id=identity, devices=[], created_at=START, until=until, **facts))
    lease(database, worker_id, identity, attempt=0)
    return identity


class TestState:
    def test_a_device_is_busy_for_its_project_with_the_job(self, api: Api, worker_id: str, database: Database) -> None:
        job = api.submit(device_type="cuda")
        lease(database, worker_id, job["id"])
        busy, free = listed(api)
        assert (busy.state, busy.job_id, busy.attempt) == ("busy", job["id"], 1)
        assert (free.state, free.job_id, free.held_by) == ("free", None, None)

    def test_a_sick_device_has_a_reason_and_a_time(self, api: Api, worker_id: str, database: Database) -> None:
        change(database, 0, health="unhealthy", reason="Xid 79", health_at=START)
        sick = listed(api)[0]
        assert (sick.worker_id, sick.state, sick.health) == (worker_id, "unusable", "unhealthy")
        assert (sick.reason, sick.health_at) == ("Xid 79", START)

    @pytest.mark.usefixtures("worker_id")
    def test_a_vanished_device_stays_in_the_list(self, api: Api, database: Database) -> None:
        change(database, 1, health="gone", reason="The host no longer lists this device.")
        assert [(device.state, device.health) for device in listed(api)] == [("free", "ok"), ("unusable", "gone")]

    @pytest.mark.usefixtures("worker_id")
    def test_one_in_use_elsewhere_shows_by_whom(self, api: Api, database: Database) -> None:
        change(database, 0, health="in_use_elsewhere", reason="In use by process 4711.", processes=OTHERS)
        device = listed(api)[0]
        assert (device.state, device.reason) == ("in_use_elsewhere", "In use by process 4711.")
        assert [process.model_dump() for process in device.processes] == OTHERS

    @pytest.mark.usefixtures("worker_id")
    def test_readings_are_passed_on(self, api: Api, database: Database) -> None:
        change(database, 0, readings={"utilization": 0.5}, readings_at=START, idle_since=START)
        device = listed(api)[0]
        assert device.readings is not None
        assert (device.readings.utilization, device.readings.power_w) == (0.5, None)
        assert (device.readings_at, device.idle_since) == (START, START)

    def test_devices_of_a_silent_host_are_offline(self, api: Api, worker_id: str, clock: FakeClock) -> None:
        clock.advance(16)  # three heartbeats of five seconds, and one more
        assert {(device.worker_id, device.state) for device in listed(api)} == {(worker_id, "offline")}

    @ONE_DATABASE
    def test_those_of_a_cordoned_host_say_that_nothing_new_starts_there(
        self, api: Api, worker_id: str, tenant: Tenant
    ) -> None:
        admin = api.with_key(tenant.admin)
        admin.post(f"/v1/workers/{worker_id}/cordon")
        assert [(device.state, device.reason) for device in listed(api)] == [
            ("free", "Its host is cordoned, so nothing new starts there.")
        ] * 2
        admin.post(f"/v1/workers/{worker_id}/uncordon")
        assert listed(api)[0].reason is None

    def test_without_workers_the_list_is_empty(self, api: Api) -> None:
        assert api.get("/v1/devices").json() == {"object": "list", "data": [], "has_more": False, "next_after": None}


class TestHeld:
    def test_its_project_and_admins_see_who_holds_it_and_everybody_until_when(
        self, api: Api, worker_id: str, tenant: Tenant, database: Database
    ) -> None:
        identity = hold(database, worker_id, tenant)
        device = listed(api)[0]
        assert device.state == "held"
        assert device.held_by is not None
        assert (device.held_by.hold_id, device.held_by.owner) == (identity, "ana")
        assert device.held_by.until == START + timedelta(hours=4)
        elsewhere = new_tenant(database, "elsewhere")
        for key, shown in ((elsewhere.user, (None, None)), (elsewhere.admin, (identity, "ana"))):
            other = listed(api.with_key(key))[0].held_by
            assert other is not None
            assert (other.hold_id, other.owner) == shown
            assert other.until == START + timedelta(hours=4)

    def test_what_runs_on_it_is_its_holder_s_until_the_hold_ends(
        self, api: Api, worker_id: str, tenant: Tenant, database: Database
    ) -> None:
        hold(database, worker_id, tenant)
        change(database, 0, health="in_use_elsewhere", reason="In use by process 4711.", processes=OTHERS)
        device = listed(api)[0]
        assert (device.state, device.health, device.reason) == ("held", "ok", None)
        with database.write() as session:
            session.delete(session.get_one(Lease, "host-a-0"))
        assert listed(api)[0].state == "in_use_elsewhere"


class TestQuarantine:
    def test_it_keeps_a_device_out_of_use_until_it_is_released(
        self, api: Api, worker_id: str, tenant: Tenant, clock: FakeClock
    ) -> None:
        admin = api.with_key(tenant.admin)
        clock.advance(5)
        answer = admin.post("/v1/devices/host-a-0/quarantine", json={"reason": "fan is loud"})
        kept = DeviceInfo.model_validate(answer.json())
        assert (kept.worker_id, kept.state, kept.health) == (worker_id, "quarantined", "quarantined")
        assert (kept.reason, kept.health_at) == ("fan is loud", START + timedelta(seconds=5))
        for _ in range(2):  # again is harmless
            back = DeviceInfo.model_validate(admin.post("/v1/devices/host-a-0/release").json())
            assert (back.state, back.health, back.reason) == ("free", "ok", None)

    @pytest.mark.usefixtures("worker_id")
    def test_a_release_does_not_make_a_device_well(self, api: Api, tenant: Tenant, database: Database) -> None:
        change(database, 0, health="unhealthy", reason="Xid 79", quarantined_at=START, quarantine_reason="it failed")
        assert listed(api)[0].reason == "it failed"
        released = api.with_key(tenant.admin).post("/v1/devices/host-a-0/release").json()
        assert (released["state"], released["reason"]) == ("unusable", "Xid 79")

    @ONE_DATABASE
    def test_a_job_that_waits_is_told(self, api: Api, tenant: Tenant, worker_id: str) -> None:
        admin = api.with_key(tenant.admin)
        for number in (0, 1):
            admin.post(f"/v1/devices/host-a-{number}/quarantine", json={"reason": "fan is loud"})
        job = api.submit(device_type="cuda")
        waiting = api.get(f"/v1/jobs/{job['id']}").json()["waiting"]
        assert (worker_id[:4], waiting["code"]) == ("wrk_", "devices_unavailable")
        assert "host-a-0: fan is loud" in waiting["message"]

    @ONE_DATABASE
    def test_an_id_may_hold_slashes(self, api: Api, tenant: Tenant, worker_id: str, database: Database) -> None:
        identity = "MIG-GPU-aaaa/1/0"  # as drivers before 470 named slices
        with database.write() as session:
            row = {"position": 9, "kind": "cuda", "name": "Slice", "seen_at": START}
            session.add(Device(id=identity, worker_id=worker_id, **row))
        for path in (identity, identity.replace("/", "%2F")):
            answer = api.with_key(tenant.admin).post(f"/v1/devices/{path}/quarantine", json={"reason": "slow"})
            assert (answer.status_code, answer.json()["id"]) == (200, identity)

    def test_no_text_of_a_path_breaks_it(self, api: Api, tenant: Tenant) -> None:
        for path in ("a%00b", "%ed%a0%80", "x/y/z", "x" * 121):
            problem(api.with_key(tenant.admin).post(f"/v1/devices/{path}/release"), 404, "not_found")

    @ONE_DATABASE
    def test_what_is_not_there_or_has_no_reason_is_refused(self, api: Api, tenant: Tenant, worker_id: str) -> None:
        admin = api.with_key(tenant.admin)
        assert worker_id
        for verb, body in (("quarantine", {"reason": "x"}), ("release", None)):
            problem(admin.post(f"/v1/devices/GPU-none/{verb}", json=body), 404, "not_found")
        refused = problem(admin.post("/v1/devices/host-a-0/quarantine", json={}), 422, "invalid_request")
        assert refused["errors"][0]["message"] == 'This key is missing, for example "fan is loud".'
