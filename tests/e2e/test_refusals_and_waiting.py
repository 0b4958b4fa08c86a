"""What is refused and what waits, and what each says; never a CPU where a GPU was asked for (C25, C28)."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from app.db import Database
from app.fleet.registry import DeviceFacts, record_devices
from tests.e2e.specs import long, quick
from tests.e2e.stack import Stack, running_stack

TWO_CARDS = {
    "devices": [
        {
            "index": n,
            "uuid": f"GPU-00000000-0000-0000-0000-00000000000{n}",
            "pci_bus_id": f"00000000:0{n + 1}:00.0",
            "name": "FakeCard",
            "memory_mib": 16384,
        }
        for n in range(2)
    ]
}


def refused(stack: Stack, spec: dict[str, Any]) -> dict[str, Any]:
    answer = stack.client.post("/v1/jobs", json=spec)
    assert answer.status_code == 422, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    return problem


def reason(stack: Stack, job_id: str) -> str:
    """Why it waits; nothing while it is placed, as it may be for a moment on a worker that has just died."""
    waiting = stack.job(job_id).get("waiting") or {"code": ""}
    return str(waiting["code"])


class TestRefused:
    def test_a_misspelt_key_names_its_place_and_the_right_one(self, stack: Stack) -> None:
        spec = quick(hyperparameters={"epochs": 1, "lerning_rate": 0.1})
        (error,) = refused(stack, spec)["errors"]
        assert (error["pointer"], error["suggestion"]) == ("/hyperparameters/lerning_rate", "learning_rate")

    def test_more_devices_than_any_host_has(self, stack: Stack) -> None:
        known = len(stack.client.get("/v1/devices").json()["data"])
        problem = refused(stack, quick(device_count=known + 1))
        assert (problem["code"], problem["maximum"]) == ("insufficient_devices", known)

    def test_cuda_where_no_host_has_any(self, stack: Stack) -> None:
        problem = refused(stack, quick(device_type="cuda"))
        assert problem["code"] == "insufficient_devices"
        assert problem["errors"][0]["pointer"] == "/device_type"


class TestWaiting:
    def test_it_says_what_it_waits_for_and_who_holds_it(self, stack: Stack) -> None:
        every_device = len(stack.client.get("/v1/devices").json()["data"])
        holder = stack.submit(long(device_count=every_device))
        stack.wait(holder, "running")
        job_id = stack.submit(quick())
        waiting = stack.job(job_id)["waiting"]
        assert waiting["code"] == "waiting_for_devices"
        assert waiting["message"] == f"waiting for 1 device, 0 free; held by {holder}"
        stack.client.post(f"/v1/jobs/{holder}/cancel")
        assert stack.wait(job_id)["state"] == "succeeded"

    def test_without_a_worker_it_is_accepted_and_says_so(self, stack: Stack) -> None:
        with stack.down("worker"):
            job_id = stack.submit(quick())
            stack.until(lambda: reason(stack, job_id) == "no_worker_online" or None, "the reason")
        assert stack.wait(job_id)["state"] == "succeeded"


class TestNeverOnTheCpu:
    def test_a_host_that_should_have_cards_and_cannot_list_them_offers_nothing(self, home: Path) -> None:
        if Path("/proc/driver/nvidia").exists():
            pytest.skip("this host has NVIDIA's driver: it can list its cards")
        with running_stack(home, {"TRAINSHED_DEVICES": "cuda"}, content=False) as stack:
            (worker,) = stack.until(lambda: stack.client.get("/v1/workers").json()["data"] or None, "the worker")
            assert stack.client.get("/v1/devices").json()["data"] == []
            assert worker["reason"]
            job_id = stack.submit({key: value for key, value in quick().items() if key != "device_type"})
            job = stack.job(job_id)
            assert (job["state"], job["device_type"]) == ("queued", "cuda")
            assert job["waiting"]["code"] == "host_blocked"
            assert worker["reason"] in job["waiting"]["message"]

    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_a_card_that_the_framework_does_not_see_ends_the_job(self, home: Path, framework: str) -> None:
        """The inventory is wrong: it lists a card that is not there. The trainer must notice."""
        # The worker's own looks would notice within seconds that it is not there.
        with running_stack(home, {"TRAINSHED_INVENTORY_S": "3600"}) as stack:
            (worker,) = stack.client.get("/v1/workers").json()["data"]
            card = DeviceFacts(id="GPU-ffffffff-0000-0000-0000-000000000000", kind="cuda", name="Ghost", position=9)
            database = Database(stack.database_url)
            with database.write() as session:
                record_devices(session, worker["id"], [card], datetime.now(UTC))
            database.dispose()
            spec = quick(framework, device_type="cuda", retry={"failures": 0, "losses": 0})
            stack.until(lambda: stack.client.get("/v1/devices").json()["data"][1:] or None, "the card is listed")
            job = stack.wait(stack.submit(spec))
            assert (job["state"], job["cause"]) == ("failed", "device_unavailable")
            assert job["attempts"][0]["started_at"] is None, "it never said that it runs"
            assert stack.client.get(f"/v1/jobs/{job['id']}/metrics").json()["data"] == []


class TestSimulatedCards:
    def test_gangs_of_two_cards(self, home: Path) -> None:
        inventory = home.parent / "inventory.json"
        inventory.write_text(json.dumps(TWO_CARDS))
        settings = {"TRAINSHED_SIMULATED_INVENTORY": str(inventory), "TRAINSHED_DEVICES": "auto"}
        with running_stack(home, settings) as stack:
            problem = refused(stack, quick(device_type="auto", device_count=3))
            assert problem["maximum"] == 2
            holder = stack.submit(long(device_type="auto"))
            stack.wait(holder, "running")
            pair = stack.submit(quick(device_type="auto", device_count=2))
            assert stack.job(pair)["waiting"]["message"].startswith("waiting for 2 devices, 1 free")
            stack.client.post(f"/v1/jobs/{holder}/cancel")
            job = stack.wait(pair)
            assert (job["state"], job["device_type"]) == ("succeeded", "cuda")
            (attempt,) = job["attempts"]
            assert [device["id"] for device in attempt["devices"]] == [card["uuid"] for card in TWO_CARDS["devices"]]
            assert (attempt["simulated"], attempt["device_kind"]) == (True, "cpu")
