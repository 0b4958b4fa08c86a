"""Hosts and devices as tables for a terminal."""

from collections.abc import Callable, Iterable, Iterator

from rich.table import Table

from app.cli.figures import age, moment, size
from app.cli.tables import Json, table


def devices_table(devices: Iterable[Json]) -> Table:
    """Columns that nobody has anything in are left out, for narrow terminals."""
    rows = list(devices)
    columns: dict[str, Callable[[Json], object]] = {
        "device": lambda device: device["id"],
        "host": lambda device: device["host_name"],
        "kind": lambda device: "simulated" if device.get("simulated") else device["kind"],
        "name": lambda device: device["name"],
        "memory": _memory,
        "state": lambda device: device["state"],
        "in use by": lambda device: "\n".join(_users(device)) or None,
        "load": _load,
        "reason": _reason,
    }
    filled = {name: cell for name, cell in columns.items() if any(cell(row) is not None for row in rows)}
    return table(list(filled), ([cell(row) for cell in filled.values()] for row in rows))


def workers_table(workers: Iterable[Json]) -> Table:
    return table(
        ("worker", "host", "state", "frameworks", "devices", "disk free", "heard", "to know"),
        (
            (
                worker["id"],
                worker["host_name"],
                ", ".join(_states(worker)),
                ", ".join(worker["frameworks"]),
                len(worker["devices"]),
                size((worker.get("condition") or {}).get("disk_free_bytes")),
                age(worker.get("heartbeat_at")),
                "\n".join(dict.fromkeys(_remarks(worker))) or None,  # a silent driver is a reason and a blocker
            )
            for worker in workers
        ),
    )


def _memory(device: Json) -> str:
    """In use and in all, where it is known."""
    used = (device.get("readings") or {}).get("memory_used_bytes")
    total = size(device.get("memory_bytes"))
    return total if used is None else f"{size(used)} of {total}"


def _users(device: Json) -> Iterator[str]:
    """The job of one's own project, the person, and whoever else computes there; a job of another project is a word."""
    holder = device.get("held_by")
    if device.get("job_id"):
        yield device["job_id"]
    elif device["state"] == "busy":
        yield "a job of another project"
    if holder:
        yield f"{holder.get('owner') or 'a person of another project'} until {moment(holder['until'])}"
        if holder.get("hold_id"):
            yield holder["hold_id"]
    for process in device.get("processes") or []:
        who = " ".join(part for part in (process.get("user"), process.get("name")) if part)
        yield f"pid {process['pid']}{f' ({who})' if who else ''}{_held_memory(process)}"


def _held_memory(process: Json) -> str:
    return f", {size(process['memory_bytes'])}" if process.get("memory_bytes") else ""


def _load(device: Json) -> str | None:
    share = (device.get("readings") or {}).get("utilization")
    idle = f"idle for {age(device['idle_since'])}" if device.get("idle_since") else None
    parts = [f"{share:.0%}" if share is not None else None, idle]
    return ", ".join(part for part in parts if part) or None


def _reason(device: Json) -> str | None:
    """With the time since when, for what somebody may want to end; nothing that `in use by` says already."""
    if device["state"] == "in_use_elsewhere" and device.get("processes"):
        return None
    if device.get("reason") and device.get("health_at") and device.get("health") == "quarantined":
        return f"{device['reason']} (since {moment(device['health_at'])})"
    return device.get("reason")


def _states(worker: Json) -> Iterator[str]:
    yield "online" if worker["online"] else "offline"
    if worker.get("draining"):
        left = worker.get("devices_in_use")
        yield f"draining ({left} in use)" if left else "drained"
    elif worker["cordoned"]:
        yield "cordoned"
    if worker.get("blocked"):
        yield "blocked"


def _remarks(worker: Json) -> Iterator[str]:
    condition = worker.get("condition") or {}
    if worker.get("reason"):
        yield worker["reason"]
    for remark in (*condition.get("blockers", ()), *condition.get("problems", ())):
        yield remark["message"]
    for name, root in (condition.get("roots") or {}).items():
        if not root.get("ok"):
            yield f"data root {name}: {root.get('problem')}"
