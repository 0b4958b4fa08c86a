"""Faults of simulated cards planted while a service of real processes runs: shown, kept out of use, and survived."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.specs import long, quick
from tests.e2e.stack import Json, Stack, running_stack

FIRST = "GPU-0f0f0f0f-0000-0000-0000-000000000000"
SECOND = "GPU-0f0f0f0f-0000-0000-0000-000000000001"
ANA = {"pid": 4_194_000, "user": "ana", "name": "python", "memory_mib": 900}
SETTINGS = {"TRAINSHED_DEVICES": "auto", "TRAINSHED_CPU_SLOTS": "0", "TRAINSHED_INVENTORY_S": "0.3"}


class Cards:
    """The file of two simulated cards; `plant` changes one of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.cards: dict[str, Json] = {
            identity: {"uuid": identity, "pci_bus_id": f"00000000:0{n}:00.0", "name": f"Card{n}", "memory_mib": 24576}
            for n, identity in enumerate((FIRST, SECOND), start=1)
        }
        self.plant(SECOND, healthy=False, last_error="Xid 79")  # as in C26

    def plant(self, identity: str, **facts: Any) -> None:
        self.cards[identity] |= facts
        unfinished = self.path.with_suffix(".new")
        unfinished.write_text(json.dumps({"devices": list(self.cards.values())}))
        unfinished.replace(self.path)


@pytest.fixture
def cards(tmp_path: Path) -> Cards:
    return Cards(tmp_path / "cards.json")


def device(stack: Stack, identity: str) -> Json:
    data: list[Json] = stack.client.get("/v1/devices").json()["data"]
    return next(one for one in data if one["id"] == identity)


def until_state(stack: Stack, identity: str, state: str) -> Json:
    def there() -> Json | None:
        shown = device(stack, identity)
        return shown if shown["state"] == state else None

    return stack.until(there, f"{identity} is {state}")


def devices_of(job: Json) -> list[str]:
    return [one["id"] for attempt in job["attempts"] for one in attempt["devices"]]


def notices(stack: Stack, job_id: str, code: str) -> list[str]:
    return [event["message"] for event in stack.events(job_id) if event.get("code") == code]


def is_empty(stack: Stack) -> bool:
    (worker,) = stack.client.get("/v1/workers").json()["data"]
    return worker["draining"] is True and worker["devices_in_use"] == 0


def act(stack: Stack, path: str, body: Json | None = None) -> Json:
    answer = stack.client.post(path, json=body) if body else stack.client.post(path)
    assert answer.status_code == 200, answer.text
    content: Json = answer.json()
    return content


@pytest.mark.slow
class TestFaultsWhileItRuns:
    def test_each_is_shown_and_handled(self, home: Path, cards: Cards) -> None:
        """One service and few jobs, one fault after the other, since each start of either takes seconds."""
        with running_stack(home, SETTINGS | {"TRAINSHED_SIMULATED_INVENTORY": str(cards.path)}) as stack:
            self.a_sick_card_is_never_used(stack)
            self.a_card_that_somebody_uses_is_waited_for(stack, cards)
            job_id = stack.submit(long(device_type="cuda"))
            stack.wait(job_id, "running")
            self.a_stranger_comes_to_a_job(stack, cards, job_id)
            self.the_card_of_a_job_vanishes(stack, cards, job_id)
            self.a_drained_worker_gives_its_jobs_back(stack, job_id)
            stack.client.post(f"/v1/jobs/{job_id}/cancel")
            stack.wait(job_id, "cancelled")
            self.a_card_is_kept_out_and_released(stack)

    def a_sick_card_is_never_used(self, stack: Stack) -> None:
        shown = device(stack, SECOND)
        assert (shown["state"], shown["health"], shown["reason"]) == ("unusable", "unhealthy", "Xid 79")
        job_id, other = (stack.submit(long(device_type="cuda")) for _ in range(2))
        stack.wait(job_id, "running")
        waiting = stack.job(other)["waiting"]
        assert (waiting["code"], waiting["message"]) == (
            "waiting_for_devices",
            f"waiting for 1 device, 0 free; held by {job_id}",
        ), "it waits rather than run on the sick one"
        for one in (other, job_id):
            stack.client.post(f"/v1/jobs/{one}/cancel")
        assert devices_of(stack.wait(job_id)) == [FIRST]

    def a_card_that_somebody_uses_is_waited_for(self, stack: Stack, cards: Cards) -> None:
        cards.plant(FIRST, processes=[ANA])
        shown = until_state(stack, FIRST, "in_use_elsewhere")
        assert shown["reason"] == "In use by process 4194000 (python, user ana)."
        (process,) = shown["processes"]
        assert (process["pid"], process["user"], process["memory_bytes"]) == (4_194_000, "ana", 900 << 20)
        job_id = stack.submit(quick(device_type="cuda"))
        waiting = stack.job(job_id)["waiting"]
        assert waiting["code"] == "devices_unavailable"
        assert "In use by process 4194000" in waiting["message"]
        assert "Xid 79" in waiting["message"]
        stack.client.post(f"/v1/jobs/{job_id}/cancel")
        cards.plant(FIRST, processes=[])
        until_state(stack, FIRST, "free")

    def a_stranger_comes_to_a_job(self, stack: Stack, cards: Cards, job_id: str) -> None:
        cards.plant(FIRST, processes=[ANA])
        stack.until(lambda: notices(stack, job_id, "foreign_process") or None, "the notice")
        stack.until(lambda: device(stack, FIRST)["processes"] or None, "the stranger is shown")
        shown = device(stack, FIRST)
        assert (shown["state"], shown["job_id"], shown["processes"][0]["pid"]) == ("busy", job_id, ANA["pid"])
        cards.plant(FIRST, processes=[])
        stack.until(lambda: not device(stack, FIRST)["processes"] or None, "the stranger has left")

    def the_card_of_a_job_vanishes(self, stack: Stack, cards: Cards, job_id: str) -> None:
        cards.plant(SECOND, healthy=True)
        until_state(stack, SECOND, "free")
        cards.plant(FIRST, vanished=True)
        stack.until(lambda: stack.job(job_id)["attempt"] == 2 or None, "the next attempt")
        attempts = stack.wait(job_id, "running")["attempts"]
        assert [attempt["cause"] for attempt in attempts] == ["device_unavailable", None]
        second = attempts[1]
        assert [one["id"] for one in second["devices"]] == [SECOND]
        assert second["resumed_from_step"], "it went on from the checkpoint that it left with"
        assert "is not there any more" in notices(stack, job_id, "device_vanished")[0]
        assert len(notices(stack, job_id, "foreign_process")) == 1
        assert device(stack, FIRST)["health"] == "gone"
        cards.plant(FIRST, vanished=False)
        until_state(stack, FIRST, "free")

    def a_drained_worker_gives_its_jobs_back(self, stack: Stack, job_id: str) -> None:
        (worker,) = stack.client.get("/v1/workers").json()["data"]
        act(stack, f"/v1/workers/{worker['id']}/drain")
        assert stack.wait(job_id, "queued")["waiting"]["code"] == "no_worker_online"
        stack.until(lambda: is_empty(stack) or None, "nothing is left there")
        act(stack, f"/v1/workers/{worker['id']}/uncordon")
        job = stack.wait(job_id, "running")
        assert [attempt["cause"] for attempt in job["attempts"]] == ["device_unavailable", "drained", None]
        assert job["attempts"][2]["resumed_from_step"] >= job["attempts"][1]["resumed_from_step"]
        assert (job["failures"], job["losses"]) == (0, 1), "a drain costs nothing"

    def a_card_is_kept_out_and_released(self, stack: Stack) -> None:
        act(stack, f"/v1/devices/{FIRST}/quarantine", {"reason": "fan is loud"})
        stack.restart("worker")
        shown = device(stack, FIRST)
        assert (shown["state"], shown["reason"]) == ("quarantined", "fan is loud"), "a restart does not end it"
        job = stack.wait(stack.submit(quick(device_type="cuda")))
        assert job["state"] == "succeeded"
        assert set(devices_of(job)) == {SECOND}
        assert act(stack, f"/v1/devices/{FIRST}/release")["state"] == "free"
