"""What the processes are: no framework outside trainers, pinned at exec, no growth (C03, C14, C16, C18)."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.specs import long, quick
from tests.e2e.stack import Stack, is_gone, running_stack

FRAMEWORK_FILES = ("libtorch", "torch/lib", "tensorflow", "libtpu", "keras")
# Fastest first would be 48, 24, 8 GB; by PCI address it is 8, 48, 24.
UNLIKE_CUDA = {
    "devices": [
        {
            "index": index,
            "uuid": f"GPU-00000000-aaaa-0000-0000-00000000000{index + 1}",
            "pci_bus_id": pci,
            "name": name,
            "memory_mib": mib,
            "speed_rank": rank,
        }
        for index, (pci, name, mib, rank) in enumerate(
            [
                ("00000000:02:00.0", "SmallCard", 8192, 3),
                ("00000000:41:00.0", "BigCard", 49152, 1),
                ("00000000:81:00.0", "MidCard", 24576, 2),
            ]
        )
    ]
}


def framework_files(pid: int) -> set[str]:
    maps = Path(f"/proc/{pid}/maps").read_text()
    return {name for name in FRAMEWORK_FILES if name in maps}


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def variables(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_bytes().decode()
    return dict(line.split("=", 1) for line in text.split("\0") if "=" in line)


def environment(job: dict[str, Any]) -> dict[str, str]:
    """What the trainer found in its `/proc/self/environ`: the environment at exec."""
    found: dict[str, str] = job["attempts"][-1]["environment"]
    return found


class TestNoFrameworkOutsideTrainers:
    def test_api_control_and_worker_stay_without_and_each_job_has_its_own_process(self, stack: Stack) -> None:
        servers = ["api", "control", "worker"]
        assert {name: framework_files(stack.pid(name)) for name in servers} == {name: set() for name in servers}
        jobs = [stack.wait(stack.submit(quick(framework))) for framework in ("torch", "tensorflow", "torch")]
        assert {job["state"] for job in jobs} == {"succeeded"}
        assert {name: framework_files(stack.pid(name)) for name in servers} == {name: set() for name in servers}
        pids = [job["attempts"][0]["workers"][0]["pid"] for job in jobs]
        assert len(set(pids)) == 3

    def test_thirty_jobs_do_not_make_the_worker_grow(self, stack: Stack) -> None:
        pid = stack.pid("worker")
        before = resident_bytes(pid)
        jobs = [stack.submit(quick(hyperparameters={"epochs": 1})) for _ in range(30)]
        assert {stack.wait(job_id, limit_s=300)["state"] for job_id in jobs} == {"succeeded"}
        assert stack.pid("worker") == pid
        grown = resident_bytes(pid) - before
        assert grown < 20 * 1024 * 1024, f"{grown / 1024 / 1024:.1f} MiB"


class TestPinnedAtExec:
    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_a_cpu_job_has_the_variable_set_and_empty(self, stack: Stack, framework: str) -> None:
        job = stack.wait(stack.submit(quick(framework)))
        assert environment(job)["CUDA_VISIBLE_DEVICES"] == ""
        assert environment(job)["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        assert "CUDA_VISIBLE_DEVICES" not in variables(stack.pid("worker")), "the worker's own stays as it was"

    def test_nothing_secret_reaches_a_trainer(self, stack: Stack) -> None:
        job_id = stack.submit(long())
        stack.wait(job_id, "running")
        found = variables(int(stack.job(job_id)["attempts"][0]["workers"][0]["pid"]))
        stack.client.post(f"/v1/jobs/{job_id}/cancel")
        stack.wait(job_id)
        # A random tag, by which left-overs of a launch are found.
        assert [name for name in found if name.startswith("TRAINSHED_")] == ["TRAINSHED_LAUNCH"]
        assert stack.key not in json.dumps(found)
        assert stack.database_url not in json.dumps(found)

    @pytest.mark.parametrize("framework", ["torch", "tensorflow"])
    def test_the_card_asked_for_is_the_card_pinned_whatever_cuda_s_order(self, home: Path, framework: str) -> None:
        inventory = home.parent / "inventory.json"
        inventory.write_text(json.dumps(UNLIKE_CUDA))
        settings = {"TRAINSHED_SIMULATED_INVENTORY": str(inventory), "TRAINSHED_DEVICES": "auto"}
        with running_stack(home, settings) as stack:
            job = stack.wait(stack.submit(quick(framework, device_type="cuda", device_name="SmallCard")))
        assert job["state"] == "succeeded", job
        small = UNLIKE_CUDA["devices"][0]
        assert environment(job)["CUDA_VISIBLE_DEVICES"] == small["uuid"]
        assert environment(job)["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
        (device,) = job["attempts"][0]["devices"]
        assert (device["id"], device["pci_bus_id"], device["name"]) == (
            small["uuid"],
            small["pci_bus_id"],
            "SmallCard",
        )


class TestOneAfterAnother:
    def test_a_device_changes_hands_only_when_the_process_is_gone(self, stack: Stack) -> None:
        """C21: TensorFlow gives a device back only when its process ends: pid 1 gone, then lease 2, then pid 2."""
        first, second = (stack.submit(quick("tensorflow", exports=[])) for _ in range(2))
        (device,) = stack.client.get("/v1/devices").json()["data"]
        assert device["kind"] == "cpu", "one device, so they take turns"
        pids: dict[str, int] = {}

        def holder_is_alone() -> bool | None:
            (seen,) = stack.client.get("/v1/devices").json()["data"]
            # Read before the processes are looked at: whoever is gone now was gone or going then, never the other way.
            jobs = {job_id: stack.job(job_id) for job_id in (first, second)}
            for job_id, job in jobs.items():
                if job["attempts"] and (pid := job["attempts"][0]["workers"][0]["pid"]):
                    pids[job_id] = pid
            if seen["job_id"] == second:
                assert is_gone(pids[first]), "the second job holds the device, and the first one's process lives"
            return all(job["state"] == "succeeded" for job in jobs.values()) or None

        stack.until(holder_is_alone, "both have succeeded")
        assert pids[first] != pids[second]
        one, two = (stack.job(job_id)["attempts"][0] for job_id in (first, second))
        assert one["started_at"] < two["placed_at"] < two["started_at"]


class TestHeartbeatIsNotProgress:
    def test_a_trainer_that_stands_still_is_not_reaped(self, home: Path) -> None:
        """Three leases long; what renews them is the worker, not training."""
        settings = {"TRAINSHED_LEASE_S": "3", "TRAINSHED_LEASE_MARGIN_S": "1", "TRAINSHED_HEARTBEAT_S": "0.4"}
        with running_stack(home, settings) as stack:
            job_id = stack.submit(long())
            stack.wait(job_id, "running")
            pid = int(stack.job(job_id)["attempts"][0]["workers"][0]["pid"])
            beats = {stack.client.get("/v1/workers").json()["data"][0]["heartbeat_at"]}
            os.kill(pid, signal.SIGSTOP)
            # At 0.4 s each, 23 heartbeats are more than three leases.
            stack.until(lambda: len(beats | _beat(stack, beats)) > 23 or None, "three leases' worth of heartbeats")
            job = stack.job(job_id)
            assert (job["state"], job["attempt"]) == ("running", 1)
            os.kill(pid, signal.SIGCONT)
            stack.client.post(f"/v1/jobs/{job_id}/cancel")
            assert stack.wait(job_id)["state"] == "cancelled"

    def test_when_the_whole_host_side_dies_the_stream_tells_and_the_job_runs_again(self, stack: Stack) -> None:
        job_id = stack.submit(quick(hyperparameters={"epochs": 300, "batch_size": 4}))
        stack.wait(job_id, "running")
        pid = int(stack.job(job_id)["attempts"][0]["workers"][0]["pid"])
        old = stack.kill("worker")
        for process in (pid,):
            os.kill(process, signal.SIGKILL)
        stack.await_successor("worker", old)
        assert stack.wait(job_id)["state"] == "succeeded"
        states = [event["state"] for event in stack.events(job_id) if event["kind"] == "state"]
        assert states == ["queued", "starting", "running", "queued", "starting", "running", "succeeded"]


def _beat(stack: Stack, seen: set[str]) -> set[str]:
    seen.add(stack.client.get("/v1/workers").json()["data"][0]["heartbeat_at"])
    return seen
