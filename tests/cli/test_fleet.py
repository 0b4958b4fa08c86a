"""The commands about hosts and devices."""

from typing import Any

from tests.cli.conftest import Trainshed
from tests.cli.fake_server import AT, JOB, FakeServer, listing

DEVICE: dict[str, Any] = {
    "id": "GPU-1",
    "object": "device",
    "worker_id": "wrk_1",
    "host_name": "gpu-host",
    "kind": "cuda",
    "name": "FakeCard",
    "memory_bytes": 16 * 1024**3,
    "simulated": False,
    "state": "busy",
    "reason": None,
    "job_id": JOB,
}
WORKER: dict[str, Any] = {
    "id": "wrk_1",
    "object": "worker",
    "host_name": "gpu-host",
    "online": True,
    "cordoned": True,
    "reason": None,
    "frameworks": ["tensorflow", "torch"],
    "heartbeat_at": AT,
    "devices": ["GPU-1", "GPU-2"],
}


def row_with(text: str, out: str) -> list[str]:
    return next(line.split() for line in out.splitlines() if text in line)


class TestDevices:
    def test_each_with_its_memory_and_holder(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", listing(DEVICE))
        row = row_with("GPU-1", trainshed("devices").out)
        assert row == ["GPU-1", "gpu-host", "cuda", "FakeCard", "16.0", "GiB", "busy", JOB, "–"]

    def test_a_simulated_one_says_so(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", listing({**DEVICE, "simulated": True}))
        assert row_with("GPU-1", trainshed("devices").out)[2] == "simulated"

    def test_none_is_said(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", listing())
        assert "no worker has registered" in trainshed("devices").out

    def test_json(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", listing(DEVICE))
        assert trainshed("devices", "--json").json == listing(DEVICE)


class TestWorkers:
    def test_each_with_its_state_and_frameworks(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/workers", listing(WORKER, {**WORKER, "id": "wrk_2", "online": False, "cordoned": False}))
        out = trainshed("workers").out
        assert row_with("wrk_1", out)[2:7] == ["online,", "cordoned", "tensorflow,", "torch", "2"]
        assert row_with("wrk_2", out)[2] == "offline"

    def test_none_is_said(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/workers", listing())
        assert trainshed("workers").out == "No worker has registered.\n"
