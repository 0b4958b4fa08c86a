"""Workers over HTTP, and taking one out of service."""

from datetime import timedelta

import pytest

from app.api.fleet_views import WorkerView
from app.api.views import ListView
from app.db import Database
from app.fleet.condition import Condition, Driver, Remark, RootState
from app.fleet.models import Lease, Worker
from tests.api.client import ONE_DATABASE, Api, Tenant, problem
from tests.fakes import START, FakeClock
from tests.rows import add_worker

FULL_DISK = Remark("disk_full", "Only 0.5 GiB are free on the disk of the run folder; 1.0 GiB are kept free.")
CONDITION = Condition(
    disk_free_bytes=5,
    disk_total_bytes=10,
    shm_bytes=64 << 20,
    roots={"scans": RootState(ok=False, problem="it is not there")},
    problems=(Remark("small_shm", "Shared memory has only 64 MiB."),),
    driver=Driver("580.65.06", "13.0"),
    metrics_port=9200,
)


@pytest.fixture
def worker_id(database: Database) -> str:
    """One worker online with two cards."""
    with database.write() as session:
        return add_worker(session, devices=2).id


def set_condition(database: Database, worker_id: str, condition: Condition) -> None:
    with database.write() as session:
        session.get_one(Worker, worker_id).condition = dict(condition.as_json())


def the_worker(api: Api) -> WorkerView:
    (shown,) = ListView[WorkerView].model_validate(api.get("/v1/workers").json()).data
    return shown


class TestList:
    def test_workers_say_what_they_run(self, api: Api, worker_id: str) -> None:
        shown = the_worker(api)
        assert (shown.id, shown.online, shown.cordoned, shown.draining) == (worker_id, True, False, False)
        assert shown.frameworks == ["tensorflow", "torch"]
        assert shown.devices == ["host-a-0", "host-a-1"]
        assert (shown.blocked, shown.devices_in_use) == (None, 0)

    @ONE_DATABASE
    def test_the_condition_is_what_the_worker_reported(self, api: Api, worker_id: str, database: Database) -> None:
        set_condition(database, worker_id, CONDITION)
        shown = the_worker(api).condition
        assert (shown.disk_free_bytes, shown.shm_bytes, shown.metrics_port) == (5, 64 << 20, 9200)
        assert shown.roots["scans"].problem == "it is not there"
        assert [remark.code for remark in shown.problems] == ["small_shm"]
        assert shown.driver is not None
        assert (shown.driver.version, shown.driver.cuda) == ("580.65.06", "13.0")

    def test_a_silent_host_is_offline(self, api: Api, worker_id: str, clock: FakeClock) -> None:
        clock.advance(16)  # three heartbeats of five seconds, and one more
        shown = the_worker(api)
        assert (shown.id, shown.online) == (worker_id, False)

    @ONE_DATABASE
    def test_without_workers_the_list_is_empty(self, api: Api) -> None:
        assert api.get("/v1/workers").json() == {"object": "list", "data": [], "has_more": False, "next_after": None}


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
        for verb in ("cordon", "uncordon", "drain"):
            answer = api.with_key(tenant.admin).post(f"/v1/workers/wrk_01k0000000000000000000000a/{verb}")
            problem(answer, 404, "not_found")


class TestDrain:
    def test_it_cordons_and_says_what_is_left_until_it_is_taken_back(
        self, api: Api, worker_id: str, tenant: Tenant, database: Database
    ) -> None:
        admin = api.with_key(tenant.admin)
        job = api.submit(device_type="cuda")
        with database.write() as session:
            lease = {"worker_id": worker_id, "job_id": job["id"], "attempt": 1, "epoch": 1}
            session.add(Lease(device_id="host-a-0", expires_at=START + timedelta(seconds=60), **lease))
        drained = WorkerView.model_validate(admin.post(f"/v1/workers/{worker_id}/drain").json())
        assert (drained.cordoned, drained.draining, drained.devices_in_use) == (True, True, 1)
        assert drained.drain_requested_at == START
        back = WorkerView.model_validate(admin.post(f"/v1/workers/{worker_id}/uncordon").json())
        assert (back.cordoned, back.draining, back.drain_requested_at) == (False, False, None)


@ONE_DATABASE
class TestBlocked:
    """A host that cannot work (its disk is full, its run folder not writable) is told wherever somebody looks (C68)."""

    @pytest.fixture(autouse=True)
    def full(self, worker_id: str, database: Database) -> None:
        set_condition(database, worker_id, Condition(blockers=(FULL_DISK,)))

    def test_the_worker_and_its_devices_say_why(self, api: Api) -> None:
        assert the_worker(api).blocked == FULL_DISK.message
        for device in api.get("/v1/devices").json()["data"]:
            assert (device["state"], device["reason"]) == ("unusable", FULL_DISK.message)

    def test_a_job_that_waits_for_it_says_why(self, api: Api) -> None:
        job = api.submit(device_type="cuda")
        waiting = api.get(f"/v1/jobs/{job['id']}").json()["waiting"]
        assert waiting["code"] == "host_blocked"
        assert FULL_DISK.message in waiting["message"]

    def test_readiness_counts_it(self, api: Api) -> None:
        checks = api.get("/readyz?verbose").json()["checks"]
        message = "1 of 1 online take nothing new; GET /v1/workers says why."
        assert checks["workers"] == {"status": "degraded", "message": message}
