"""A host whose card is cut into MIG slices, with real processes (case C17)."""

from pathlib import Path

from tests.e2e.specs import quick
from tests.e2e.stack import running_stack

INVENTORY = Path(__file__).parents[1] / "workers" / "inventory" / "files" / "mig.json"
UNITS = {
    "MIG-aaaaaaaa-0000-5000-8000-000000000001",
    "MIG-aaaaaaaa-0000-5000-8000-000000000002",
    "GPU-66666666-7777-8888-9999-000000000000",
}


class TestSlicedHost:
    def test_three_jobs_run_on_three_units_and_none_gets_two(self, home: Path) -> None:
        settings = {"TRAINSHED_SIMULATED_INVENTORY": str(INVENTORY), "TRAINSHED_DEVICES": "auto"}
        with running_stack(home, settings) as stack:
            devices = stack.client.get("/v1/devices").json()["data"]
            assert {device["id"] for device in devices if device["kind"] == "cuda"} == UNITS
            pair = stack.client.post("/v1/jobs", json=quick(device_type="cuda", device_count=2))
            assert pair.status_code == 422
            assert "1 whole card and 2 MIG slices" in pair.json()["detail"]
            # Cordoned until all three wait, so that none has its unit back before the next one comes.
            (worker,) = stack.client.get("/v1/workers").json()["data"]
            stack.client.post(f"/v1/workers/{worker['id']}/cordon")
            ids = [stack.submit(quick(device_type="cuda")) for _ in range(3)]
            stack.client.post(f"/v1/workers/{worker['id']}/uncordon")
            jobs = [stack.wait(job_id) for job_id in ids]
        assert {job["state"] for job in jobs} == {"succeeded"}
        attempts = [attempt for job in jobs for attempt in job["attempts"]]
        held = [device["id"] for attempt in attempts for device in attempt["devices"]]
        assert sorted(held) == sorted(UNITS)
        assert [attempt["environment"]["CUDA_VISIBLE_DEVICES"] for attempt in attempts] == held
