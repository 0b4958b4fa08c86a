"""The commands about hosts and devices."""

import json
from typing import Any

import pytest

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
    "health": "ok",
    "reason": None,
    "job_id": JOB,
    "held_by": None,
    "processes": [],
    "readings": None,
    "idle_since": None,
}
WORKER: dict[str, Any] = {
    "id": "wrk_1",
    "object": "worker",
    "host_id": "machine-1",
    "host_name": "gpu-host",
    "online": True,
    "cordoned": True,
    "draining": False,
    "blocked": None,
    "reason": None,
    "condition": {"disk_free_bytes": 20 * 1024**3},
    "frameworks": ["tensorflow", "torch"],
    "heartbeat_at": AT,
    "devices": ["GPU-1", "GPU-2"],
    "devices_in_use": 0,
}


def row_with(text: str, out: str) -> list[str]:
    return next(line.split() for line in out.splitlines() if text in line)


def shown(out: str) -> str:
    """The words of a table, whatever the lines were broken into."""
    return " ".join(out.split())


class TestDevices:
    def test_each_with_its_memory_and_holder(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", listing(DEVICE))
        row = row_with("GPU-1", trainshed("devices").out)
        assert row[:7] == ["GPU-1", "gpu-host", "cuda", "FakeCard", "16.0", "GiB", "busy"]
        assert JOB in trainshed("devices").out

    def test_a_simulated_one_says_so(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", listing({**DEVICE, "simulated": True}))
        assert row_with("GPU-1", trainshed("devices").out)[2] == "simulated"

    def test_a_job_of_another_project_has_no_name(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", listing({**DEVICE, "job_id": None}))
        assert "a job of another project" in trainshed("devices").out

    def test_who_holds_it_and_until_when(self, server: FakeServer, trainshed: Trainshed) -> None:
        holder = {"hold_id": "hold_1", "owner": "ana", "until": AT}
        server.on("GET /v1/devices", listing({**DEVICE, "state": "held", "job_id": None, "held_by": holder}))
        out = trainshed("devices").out
        assert "ana until 2026-01-31T12:00:00Z" in out
        assert "hold_1" in out
        hidden = {**DEVICE, "state": "held", "job_id": None, "held_by": {**holder, "owner": None, "hold_id": None}}
        server.on("GET /v1/devices", listing(hidden))
        assert "a person of another project until 2026-01-31T12:00:00Z" in trainshed("devices").out

    def test_who_else_computes_there(self, server: FakeServer, trainshed: Trainshed) -> None:
        process = {"pid": 4711, "user": "ana", "name": "python", "memory_bytes": 9 * 1024**3, "kind": "compute"}
        elsewhere = {**DEVICE, "state": "in_use_elsewhere", "job_id": None, "processes": [process, {"pid": 7}]}
        server.on("GET /v1/devices", listing(elsewhere))
        out = trainshed("devices").out
        assert "pid 4711 (ana python), 9.0 GiB" in out
        assert "pid 7" in out

    def test_load_memory_in_use_and_idleness(self, server: FakeServer, trainshed: Trainshed) -> None:
        readings = {"utilization": 0.034, "memory_used_bytes": 1024**3}
        server.on("GET /v1/devices", listing({**DEVICE, "readings": readings, "idle_since": "2020-01-01T00:00:00Z"}))
        out = trainshed("devices").out
        assert "1.0 GiB of 16.0 GiB" in out
        assert "3%, idle for" in out

    def test_why_and_since_when_one_is_kept_out(self, server: FakeServer, trainshed: Trainshed) -> None:
        kept = {"state": "quarantined", "health": "quarantined", "reason": "Xid 79", "health_at": AT, "job_id": None}
        server.on("GET /v1/devices", listing({**DEVICE, **kept}))
        assert "Xid 79 (since 2026-01-31T12:00:00Z)" in trainshed("devices").out

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
        assert row_with("wrk_1", out)[2:9] == ["online,", "cordoned", "tensorflow,", "torch", "2", "20.0", "GiB"]
        assert row_with("wrk_2", out)[2] == "offline"

    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"draining": True, "devices_in_use": 2}, "online, draining (2 in use)"),
            ({"draining": True}, "online, drained"),
            ({"cordoned": False, "blocked": "x"}, "online, blocked"),
        ],
    )
    def test_what_keeps_it_from_new_jobs(
        self, server: FakeServer, trainshed: Trainshed, changes: dict[str, Any], said: str
    ) -> None:
        server.on("GET /v1/workers", listing({**WORKER, **changes}))
        assert said in trainshed("workers").out

    def test_everything_that_is_to_be_known_of_it(self, server: FakeServer, trainshed: Trainshed) -> None:
        condition = {
            "blockers": [{"code": "disk_full", "message": "The disk is full."}],
            "problems": [{"code": "small_shm", "message": "Little shared memory."}],
            "roots": {"scans": {"ok": False, "problem": "it is not there"}, "good": {"ok": True, "problem": None}},
        }
        server.on("GET /v1/workers", listing({**WORKER, "reason": "A card is lost.", "condition": condition}))
        out = trainshed("workers").out
        for text in ("A card is lost.", "The disk is full.", "Little shared memory.", "data root scans: it is not"):
            assert text in out
        assert "data root good" not in out

    def test_what_is_a_reason_and_a_blocker_is_said_once(self, server: FakeServer, trainshed: Trainshed) -> None:
        silent = {"code": "driver_silent", "message": "NoAnswer"}
        server.on("GET /v1/workers", listing({**WORKER, "reason": "NoAnswer", "condition": {"blockers": [silent]}}))
        assert trainshed("workers").out.count("NoAnswer") == 1

    def test_none_is_said(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/workers", listing())
        assert trainshed("workers").out == "No worker has registered.\n"


class TestOutOfService:
    @pytest.mark.parametrize("name", ["wrk_1", "gpu-host", "machine-1"])
    def test_a_worker_is_named_by_its_id_or_its_host(self, server: FakeServer, trainshed: Trainshed, name: str) -> None:
        server.on("GET /v1/workers", listing(WORKER))
        server.on("POST /v1/workers/wrk_1/cordon", {**WORKER, "devices_in_use": 2})
        assert trainshed("cordon", name).out == "gpu-host takes no new jobs; 2 devices are still in use.\n"

    def test_a_name_that_nobody_has_or_two_have_is_refused(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/workers", listing(WORKER, {**WORKER, "id": "wrk_2"}))
        nobody, two = trainshed("cordon", "box"), trainshed("cordon", "gpu-host")
        assert (nobody.code, two.code) == (2, 2)
        assert "No worker is called 'box'. Known: gpu-host (wrk_1)" in shown(nobody.err)
        assert "More than one worker is called 'gpu-host'" in shown(two.err)

    @pytest.mark.parametrize(
        ("blocked", "said"),
        [(None, "gpu-host takes new jobs."), ("Disk full.", "takes new jobs, but not now: Disk full.")],
    )
    def test_uncordon_says_when_it_still_takes_none(
        self, server: FakeServer, trainshed: Trainshed, blocked: str | None, said: str
    ) -> None:
        server.on("GET /v1/workers", listing(WORKER))
        server.on("POST /v1/workers/wrk_1/uncordon", {**WORKER, "cordoned": False, "blocked": blocked})
        assert said in shown(trainshed("uncordon", "wrk_1").out)

    def test_drain_waits_until_nothing_is_left_if_asked(self, server: FakeServer, trainshed: Trainshed) -> None:
        busy = {**WORKER, "draining": True, "devices_in_use": 1}
        server.on("GET /v1/workers", listing(WORKER), listing(busy), listing({**busy, "devices_in_use": 0}))
        server.on("POST /v1/workers/wrk_1/drain", busy)
        assert trainshed("drain", "wrk_1", "--wait").out == "gpu-host takes no new jobs; no job is there.\n"
        assert len(server.asked("GET /v1/workers")) == 3

    def test_drain_returns_at_once_otherwise(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/workers", listing(WORKER))
        server.on("POST /v1/workers/wrk_1/drain", {**WORKER, "draining": True, "devices_in_use": 1})
        assert trainshed("drain", "wrk_1").out == "gpu-host takes no new jobs; 1 device is still in use.\n"
        assert trainshed("drain", "wrk_1", "--json").json["draining"] is True


class TestQuarantine:
    def test_a_device_is_named_by_a_part_of_its_id(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", listing(DEVICE, {**DEVICE, "id": "GPU-2"}))
        server.on("POST /v1/devices/GPU-2/quarantine", {**DEVICE, "id": "GPU-2", "state": "quarantined"})
        said = trainshed("quarantine", "2", "--reason", "fan is loud")
        assert said.out == "GPU-2 quarantined: fan is loud\n"
        (asked,) = server.asked("POST /v1/devices/GPU-2/quarantine")
        assert json.loads(asked.content) == {"reason": "fan is loud"}

    def test_a_whole_id_is_meant_even_if_another_one_contains_it(
        self, server: FakeServer, trainshed: Trainshed
    ) -> None:
        server.on("GET /v1/devices", listing(DEVICE, {**DEVICE, "id": "GPU-11"}))
        server.on("POST /v1/devices/GPU-1/release", {**DEVICE, "state": "free"})
        assert trainshed("release", "GPU-1").out == "GPU-1 free\n"

    def test_an_id_may_have_signs_that_mean_something_in_an_address(
        self, server: FakeServer, trainshed: Trainshed
    ) -> None:
        server.on("GET /v1/devices", listing({**DEVICE, "id": "cpu-0@box #1?"}))
        server.on("POST /v1/devices/cpu-0@box #1?/release", {**DEVICE, "state": "free"})
        assert trainshed("release", "cpu-0").code == 0

    def test_a_release_says_what_is_still_wrong(self, server: FakeServer, trainshed: Trainshed) -> None:
        server.on("GET /v1/devices", listing(DEVICE))
        server.on("POST /v1/devices/GPU-1/release", {**DEVICE, "state": "unusable", "reason": "Xid 79"})
        assert trainshed("release", "GPU-1").out == "GPU-1 unusable: Xid 79\n"
        assert trainshed("release", "GPU-1", "--json").json["reason"] == "Xid 79"

    @pytest.mark.parametrize(("name", "said"), [("GPU", "More than one device has"), ("MIG", "No device has")])
    def test_an_unclear_name_is_refused(self, server: FakeServer, trainshed: Trainshed, name: str, said: str) -> None:
        server.on("GET /v1/devices", listing(DEVICE, {**DEVICE, "id": "GPU-2"}))
        refused = trainshed("release", name)
        assert (refused.code, said in refused.err) == (2, True)
        assert "GPU-1, GPU-2" in shown(refused.err)
