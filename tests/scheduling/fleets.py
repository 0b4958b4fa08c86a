"""Fleets and queues for the pure part of the scheduler, and strategies that draw them."""

from datetime import timedelta

from hypothesis import strategies as st

from app.fleet.repository import DeviceView, HostView
from app.scheduling.plan import WaitingJob
from tests.fakes import START

BLOCKED = {"blockers": [{"code": "disk_full", "message": "The disk is full."}]}


def device(identity: str, kind: str = "cuda", *, held_by: str | None = None, **changes: object) -> DeviceView:
    values: dict[str, object] = {
        "id": identity,
        "kind": kind,
        "name": "FakeCard",
        "position": 0,
        "memory_bytes": 16 * 1024**3,
        "pci_bus_id": None,
        "simulated": True,
        "health": "ok",
        "reason": None,
        "job_id": held_by,
        "attempt": 1 if held_by else None,
    }
    return DeviceView(**{**values, **changes})  # type: ignore[arg-type] # a row of mixed values


def host(identity: str, *devices: DeviceView, **changes: object) -> HostView:
    values: dict[str, object] = {
        "worker_id": f"wrk_{identity}",
        "host_id": identity,
        "host_name": identity,
        "online": True,
        "cordoned": False,
        "reason": None,
        "frameworks": frozenset({"torch", "tensorflow"}),
        "devices": devices,
    }
    return HostView(**{**values, **changes})  # type: ignore[arg-type] # a row of mixed values


def job(identity: str, count: int = 1, *, age_s: float = 0.0, **changes: object) -> WaitingJob:
    values: dict[str, object] = {
        "id": identity,
        "framework": "torch",
        "device_type": "cuda",
        "device_count": count,
        "priority": 0,
        "queued_at": START - timedelta(seconds=age_s),
    }
    return WaitingJob(**{**values, **changes})  # type: ignore[arg-type] # a row of mixed values


@st.composite
def fleets(draw: st.DrawFn) -> list[HostView]:
    hosts = []
    for h in range(draw(st.integers(1, 3))):
        devices = [
            device(
                f"{name}-{h}-{d}",
                "cpu" if name == "cpu" else "cuda",
                held_by=draw(st.sampled_from([None, None, "job_other"])),
                health=draw(st.sampled_from(["ok", "ok", "ok", "sick"])),
                memory_bytes=draw(st.sampled_from([8, 16, 48])) * 1024**3,
                position=d,
            )
            for d, name in enumerate(draw(st.lists(st.sampled_from(["GPU", "MIG", "cpu"]), max_size=4)))
        ]
        frameworks = draw(st.sampled_from([("torch",), ("torch", "tensorflow")]))
        hosts.append(
            host(
                f"h{h}",
                *devices,
                online=draw(st.sampled_from([True, True, True, False])),
                cordoned=draw(st.sampled_from([False, False, True])),
                condition=draw(st.sampled_from([{}, {}, BLOCKED])),
                frameworks=frozenset(frameworks),
            )
        )
    return hosts


@st.composite
def queues(draw: st.DrawFn) -> list[WaitingJob]:
    return [
        job(
            f"job_{n:03}",
            draw(st.integers(1, 4)),
            age_s=draw(st.integers(0, 100_000)),
            priority=draw(st.integers(-2, 2)),
            device_type=draw(st.sampled_from(["cuda", "cpu"])),
            framework=draw(st.sampled_from(["torch", "tensorflow"])),
            min_device_memory_bytes=draw(st.sampled_from([None, 12 * 1024**3])),
            not_before=draw(st.sampled_from([None, None, START + timedelta(seconds=60)])),
        )
        for n in range(draw(st.integers(0, 8)))
    ]
