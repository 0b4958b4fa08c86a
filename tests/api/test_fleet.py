"""Workers and devices over HTTP, and taking a worker out of service."""

import pytest

from app.api.views import DeviceInfo, ListView, WorkerView
from app.db import Database
from app.fleet.models import Device, Lease, Worker
from tests.api.client import ONE_DATABASE, Api, Tenant, problem
from tests.fakes import START, FakeClock
from tests.rows import add_worker


@pytest.fixture
def worker_id(database: Database) -> str:
    """One worker online with two cards."""
    with database.write() as session:
        return add_worker(session, devices=2).id


class TestList:
    def test_workers_say_what_they_run(self, api: Api, worker_id: str) -> None:
        (shown,) = ListView[WorkerView].model_validate(api.get("/v1/workers").json()).data
        assert (shown.id, shown.online, shown.cordoned) == (worker_id, True, False)
        assert shown.frameworks == ["tensorflow", "torch"]
        assert shown.devices == ["host-a-0", "host-a-1"]

    def test_devices_say_what_they_can_be_used_for(
        self, api: Api, worker_id: str, database: Database, clock: FakeClock
    ) -> None:
        job = api.submit(device_type="cuda")
        with database.write() as session:
            sick = session.get_one(Device, "host-a-1")
            sick.health, sick.reason = "sick", "ECC error"
            lease = {"worker_id": worker_id, "job_id": job["id"], "attempt": 1, "epoch": 1}
            session.add(Lease(device_id="host-a-0", expires_at=START, **lease))
        clock.advance(1)
        busy, sick_now = ListView[DeviceInfo].model_validate(api.get("/v1/devices").json()).data
        assert (busy.state, busy.job_id, busy.attempt) == ("busy", job["id"], 1)
        assert (sick_now.state, sick_now.reason, sick_now.job_id) == ("unusable", "ECC error", None)

    def test_a_silent_host_is_offline_with_its_devices(self, api: Api, worker_id: str, clock: FakeClock) -> None:
        clock.advance(16)  # three heartbeats of five seconds, and one more
        (worker,) = api.get("/v1/workers").json()["data"]
        assert (worker["id"], worker["online"]) == (worker_id, False)
        assert {device["state"] for device in api.get("/v1/devices").json()["data"]} == {"offline"}

    @ONE_DATABASE
    def test_without_workers_the_lists_are_empty(self, api: Api) -> None:
        for path in ("/v1/workers", "/v1/devices"):
            assert api.get(path).json() == {"object": "list", "data": [], "has_more": False, "next_after": None}


class TestCordon:
    def test_and_back_and_again_is_harmless(self, api: Api, worker_id: str, tenant: Tenant, database: Database) -> None:
        admin = api.with_key(tenant.admin)
        for verb, cordoned in (("cordon", True), ("cordon", True), ("uncordon", False), ("uncordon", False)):
            answer = admin.post(f"/v1/workers/{worker_id}/{verb}")
            assert (answer.status_code, answer.json()["cordoned"]) == (200, cordoned)
            WorkerView.model_validate(answer.json())
            with database.read() as session:
                assert session.get_one(Worker, worker_id).cordoned is cordoned

    @ONE_DATABASE
    def test_is_seen_at_once_by_who_waits(self, api: Api, worker_id: str, tenant: Tenant) -> None:
        job = api.submit(device_type="cuda")
        assert api.get(f"/v1/jobs/{job['id']}").json()["waiting"]["code"] == "about_to_start"
        api.with_key(tenant.admin).post(f"/v1/workers/{worker_id}/cordon")
        assert api.get(f"/v1/jobs/{job['id']}").json()["waiting"]["code"] == "no_worker_online"

    @ONE_DATABASE
    def test_a_worker_that_is_not_there_is_404(self, api: Api, tenant: Tenant) -> None:
        for verb in ("cordon", "uncordon"):
            answer = api.with_key(tenant.admin).post(f"/v1/workers/wrk_01k0000000000000000000000a/{verb}")
            problem(answer, 404, "not_found")
