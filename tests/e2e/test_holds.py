"""A hold with real processes: what a shell gets, what a job gets meanwhile, and what both have used in the end."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.specs import quick
from tests.e2e.stack import Stack, running_stack


def idle_card(path: Path) -> Path:
    """One simulated card that does nothing at 200 W."""
    readings = {"utilization": 0.0, "power_w": 200.0}
    card = {"uuid": "GPU-0", "pci_bus_id": "0000:00:00.0", "memory_mib": 1024, "readings": readings}
    path.write_text(json.dumps({"devices": [card]}))
    return path


def trainshed(stack: Stack, *arguments: str) -> str:
    command = [sys.executable, "-P", "-m", "app.cli", *arguments, "--url", stack.url, "--key", stack.key]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def only_device(stack: Stack) -> dict[str, Any]:
    (device,) = (found for found in stack.client.get("/v1/devices").json()["data"] if found["kind"] == "cuda")
    return dict(device)


class TestHold:
    def test_keeps_jobs_off_its_card_over_a_restart_until_its_time_is_over(self, home: Path, tmp_path: Path) -> None:
        settings = {
            "TRAINSHED_SIMULATED_INVENTORY": str(idle_card(tmp_path / "cards.json")),
            "TRAINSHED_DEVICES": "auto",
            "TRAINSHED_TELEMETRY_S": "0.2",
            "TRAINSHED_IDLE_AFTER_S": "0.5",
        }
        with running_stack(home, settings) as stack:
            shell = trainshed(stack, "hold", "1", "--for", "1h", "--note", "notebook")
            assert "export CUDA_VISIBLE_DEVICES=GPU-0" in shell.splitlines()
            (hold,) = stack.client.get("/v1/holds").json()["data"]
            stack.until(lambda: only_device(stack)["idle_since"], "the held card is shown as idle")

            stack.restart("worker")
            job_id = stack.submit(quick(device_type="cuda"))
            said = f"held by {hold['owner']} until "
            stack.until(lambda: said in (stack.job(job_id).get("waiting") or {}).get("message", "") or None, said)
            stack.client.patch(f"/v1/holds/{hold['id']}", json={"for_s": 0.5})
            assert stack.wait(job_id)["state"] == "succeeded"

            ended = stack.client.get(f"/v1/holds/{hold['id']}").json()
            assert (ended["ended_why"], ended["energy_j"] > 0) == ("expired", True)
            report = stack.client.get("/v1/usage", params={"by": "job"}).json()
            assert {line["key"] for line in report["data"]} == {hold["id"], job_id}
            assert report["total"]["cuda_device_s"] >= ended["device_s"] > 0
            assert stack.job(job_id)["usage"]["device_s"] > 0
            assert "card-hours" in trainshed(stack, "usage", "--by", "job")
