"""A real trainer behind the real launcher, on a card, as a worker would start it."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from app.spec import parse_job, resolve
from app.spec.shared import DeviceType
from app.tables import builtin_schema
from tests.gpu.cards import Card
from tests.workers.launcher.attempt import FAR_NS, ROOT, Attempt, assignment, boot_ns
from workers.launch import ColdLauncher, LaunchRequest, Running, trainer_environment
from workers.protocol import DataSource, Device

LONG = 1_000_000
THREADS = 4


def device_of(card: Card) -> Device:
    return Device(
        id=card.id, kind="cuda", name=card.name, pci_bus_id=card.pci_bus_id, memory_bytes=card.memory_bytes or None
    )


def start(
    folder: Path,
    framework: str,
    devices: Sequence[Device],
    *,
    seen: Sequence[Device] | None = None,
    epochs: int = 2,
    data: str = "digits",
    model: dict[str, Any] | None = None,
    **settings: Any,
) -> tuple[Running, Attempt]:
    """Train on these devices; `seen`: pin it to others than the lease says. `settings` are hyperparameters."""
    raw = {
        "framework": framework,
        "model": model or {"type": "mlp", "hidden": [64]},
        "data": data,
        "device_count": len(devices),
        "hyperparameters": {"epochs": epochs, "batch_size": 64, **settings},
    }
    kind: DeviceType = "cpu" if all(device.kind == "cpu" for device in devices) else "cuda"
    spec = resolve(parse_job(raw), builtin_schema(data), kind)
    work_dir = folder / "work"
    told = assignment(work_dir, list(devices)).model_copy(
        update={"spec": spec, "table": DataSource(builtin=data), "threads": THREADS}
    )
    environment = trainer_environment(devices if seen is None else seen, THREADS, work_dir, os.environ)
    request = LaunchRequest(
        interpreter=Path(sys.executable),
        environment={**environment, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        assignment=told,
        lock_dir=folder / "locks",
        until_boot_ns=boot_ns() + FAR_NS,
    )
    run = ColdLauncher().start(request)
    return run, Attempt(run, request, limit_s=300.0)


def until(attempt: Attempt, *types: str) -> list[dict[str, Any]]:
    """All messages up to the first of these types."""
    said = [attempt.line()]
    while said[-1]["type"] not in types:
        said.append(attempt.line())
    return said


def series(said: Sequence[dict[str, Any]], name: str) -> list[float]:
    """The values of one series, in order."""
    reports = [message for message in said if message["type"] == "report"]
    return [point["value"] for report in reports for point in report["points"] if point["name"] == name]
