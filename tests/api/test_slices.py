"""MIG slices over HTTP: each is a device, and a job gets one of them or whole cards (case C17)."""

from pathlib import Path

import pytest

from app.db import Database
from app.fleet.registry import WorkerFacts, register
from app.scheduling.run import schedule
from tests.api.client import SPEC, Api, problem
from tests.fakes import START, FakeClock
from tests.jobs.placing import TIMES
from workers.inventory import SimulatedInventory

# One card cut into two slices, and one whole card.
INVENTORY = Path(__file__).parents[1] / "workers" / "inventory" / "files" / "mig.json"
SLICES = {"MIG-aaaaaaaa-0000-5000-8000-000000000001", "MIG-aaaaaaaa-0000-5000-8000-000000000002"}
CARD = "GPU-66666666-7777-8888-9999-000000000000"


@pytest.fixture(autouse=True)
def _sliced_host(database: Database, clock: FakeClock) -> None:
    """The host as its worker would register it from this inventory."""
    offered = {"version": "2", "interpreter": "/opt/torch/bin/python"}
    facts = WorkerFacts("host-a", "box", "instance-1", "boot-1", "1", {"torch": offered})
    with database.write() as session:
        register(session, facts, SimulatedInventory(INVENTORY, 4).list_devices().devices, START)
    clock.advance(1)


class TestSlicedHost:
    def test_it_has_three_devices_and_not_the_card_that_is_cut(self, api: Api) -> None:
        devices = api.get("/v1/devices").json()["data"]
        assert {device["id"] for device in devices} == {*SLICES, CARD}
        assert {device["state"] for device in devices} == {"free"}

    def test_three_jobs_of_one_device_get_three(self, api: Api, database: Database) -> None:
        jobs = [api.submit(device_type="cuda") for _ in range(3)]
        assert {placed.job_id for placed in schedule(database, TIMES)} == {job["id"] for job in jobs}
        shown = [api.get(f"/v1/jobs/{job['id']}").json()["attempts"][0]["devices"] for job in jobs]
        assert {device["id"] for (device,) in shown} == {*SLICES, CARD}

    @pytest.mark.parametrize("path", ["/v1/jobs", "/v1/jobs/validate"])
    @pytest.mark.parametrize("count", [2, 3])
    def test_a_job_of_several_is_refused_with_the_reason_and_what_works(self, api: Api, path: str, count: int) -> None:
        answer = api.post(path, json=SPEC | {"device_type": "cuda", "device_count": count})
        shown = problem(answer, 422, "insufficient_devices")
        assert shown["maximum"] == 1
        (error,) = shown["errors"]
        assert (error["pointer"], error["suggestion"]) == ("/device_count", "Use device_count: 1.")
        assert "1 whole card and 2 MIG slices. A CUDA process sees at most one slice" in shown["detail"]
