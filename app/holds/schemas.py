"""The wire form of a hold."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from app.clock import to_rfc3339
from app.holds.models import Hold


def hold_json(hold: Hold, host_name: str, now: datetime) -> dict[str, Any]:
    """The hold object; `device_s` and `now` count a hold that is open until now."""
    return {
        "id": hold.id,
        "object": "hold",
        "owner": hold.owner,
        "note": hold.note,
        "worker_id": hold.worker_id,
        "host_name": host_name,
        "devices": hold.devices,
        "environment": environment_of(hold.devices),
        "created_at": to_rfc3339(hold.created_at),
        "until": to_rfc3339(hold.until),
        "ended_at": to_rfc3339(hold.ended_at) if hold.ended_at else None,
        "ended_why": hold.ended_why,
        "stop_when_idle_s": hold.stop_when_idle_s,
        "device_s": device_s(hold, now),
        "energy_j": hold.energy_j,
    }


def device_s(hold: Hold, now: datetime) -> float:
    """Devices times seconds, until its end or until now."""
    return len(hold.devices) * max(0.0, ((hold.ended_at or now) - hold.created_at).total_seconds())


def environment_of(devices: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What a program on that host must have in its environment, before it starts, to use these devices and no others.

    Ids, never indices, whose order differs between CUDA and NVML. Empty hides every card: these are CPU slots. The
    threads are the devices' share of the host's cores.
    """
    threads = sum(int(device.get("threads", 1)) for device in devices)
    return {
        "CUDA_VISIBLE_DEVICES": ",".join(str(device["id"]) for device in devices if device["kind"] != "cpu"),
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "OMP_NUM_THREADS": str(max(1, threads)),
    }
