"""Gauges of hosts and devices. Label `host` is the id of a host, `device` that of a device: as many values as things.

Names for people are in two information series, to be joined: `trainshed_worker_info` and `trainshed_device_info`.
"""

from collections import Counter as Tally
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import datetime, timedelta
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from app.api.telemetry import state_of
from app.fleet.condition import Condition, read_condition
from app.fleet.repository import DeviceView, HostView

DEVICE_STATES: Final = ("busy", "held", "free", "in_use_elsewhere", "quarantined", "unusable", "offline")
WORKER_STATES: Final = ("online", "left", "silent")
READINGS_AGE: Final = timedelta(minutes=5)
"""Older readings are not shown: a card that nobody asks any more is not as it was."""

_READINGS: Final = {
    "utilization": ("trainshed_device_utilization_ratio", "Share of time in which the device computed, 0 to 1."),
    "memory_used_bytes": ("trainshed_device_memory_used_bytes", "Memory in use on the device, by whomever."),
    "power_w": ("trainshed_device_power_watts", "Power that the device takes."),
    "temperature_c": ("trainshed_device_temperature_celsius", "Temperature of the device."),
}


def gauge(name: str, text: str, value: float) -> Metric:
    """A gauge without labels."""
    family = GaugeMetricFamily(name, text)
    family.add_metric([], float(value))
    return family


def fleet_gauges(hosts: Sequence[HostView], left: Collection[str], now: datetime) -> Iterator[Metric]:
    """All of them; `left` are the ids of hosts whose worker said that it leaves."""
    yield from _workers(hosts, left)
    yield from _conditions(hosts)
    yield from _devices(hosts)
    yield from _readings(hosts, now)


def _workers(hosts: Sequence[HostView], left: Collection[str]) -> Iterator[Metric]:
    info = _family("trainshed_worker_info", "Always 1; names a host.", "host", "host_name", "version")
    states = _family("trainshed_worker_state", "1 for the state that the worker is in.", "host", "state")
    beats = _family("trainshed_worker_last_heartbeat_timestamp_seconds", "When the worker was last heard.", "host")
    for host in hosts:
        info.add_metric([host.host_id, host.host_name, host.version], 1)
        for state in WORKER_STATES:
            states.add_metric([host.host_id, state], state == _worker_state(host, left))
        if host.heartbeat_at is not None:
            beats.add_metric([host.host_id], host.heartbeat_at.timestamp())
    yield from (info, states, beats)
    yield _per_host("trainshed_worker_cordoned", "Whether the host is cordoned.", hosts, lambda host: host.cordoned)
    yield _per_host(
        "trainshed_worker_blocked",
        "Whether the host's own state keeps it from taking jobs, such as a full disk.",
        hosts,
        lambda host: host.blocked is not None,
    )


def _worker_state(host: HostView, left: Collection[str]) -> str:
    if host.online:
        return "online"
    return "left" if host.host_id in left else "silent"


def _conditions(hosts: Sequence[HostView]) -> Iterator[Metric]:
    """Sizes that a worker tells of its host, while it is online."""
    readers: dict[str, tuple[str, Callable[[Condition], int | None]]] = {
        "trainshed_host_disk_free_bytes": ("Free disk where jobs work.", lambda found: found.disk_free_bytes),
        "trainshed_host_disk_size_bytes": ("Size of that disk.", lambda found: found.disk_total_bytes),
        "trainshed_host_shm_size_bytes": ("Size of the shared memory.", lambda found: found.shm_bytes),
    }
    told = [(host.host_id, read_condition(host.condition)) for host in hosts if host.online]
    for name, (text, read) in readers.items():
        family = _family(name, text, "host")
        for host_id, condition in told:
            size = read(condition)
            if size is not None:
                family.add_metric([host_id], size)
        yield family


def _devices(hosts: Sequence[HostView]) -> Iterator[Metric]:
    states = _family("trainshed_devices", "Devices by what they can be used for now.", "host", "state")
    info = _family("trainshed_device_info", "Always 1; names a device.", "host", "device", "name", "kind")
    memory = _family("trainshed_device_memory_size_bytes", "Memory of the device.", "host", "device")
    idle = _family("trainshed_devices_idle", "Devices that somebody has and that do nothing.", "host")
    for host in hosts:
        found = Tally(state_of(host, device) for device in host.devices)
        for state in DEVICE_STATES:
            states.add_metric([host.host_id, state], found[state])
        for device in host.devices:
            info.add_metric([host.host_id, device.id, device.name, device.kind], 1)
            if device.memory_bytes is not None:
                memory.add_metric([host.host_id, device.id], device.memory_bytes)
        idle.add_metric([host.host_id], sum(_is_idle(device) for device in host.devices))
    yield from (states, info, memory, idle)


def _is_idle(device: DeviceView) -> bool:
    return device.idle_since is not None and (device.job_id is not None or device.hold_id is not None)


def _readings(hosts: Sequence[HostView], now: datetime) -> Iterator[Metric]:
    families = {key: _family(name, text, "host", "device") for key, (name, text) in _READINGS.items()}
    for host in hosts:
        for device in host.devices:
            if device.readings is None or device.readings_at is None or now - device.readings_at > READINGS_AGE:
                continue
            for key, family in families.items():
                value = device.readings.get(key)
                if isinstance(value, int | float):
                    family.add_metric([host.host_id, device.id], value)
    yield from families.values()


def _per_host(name: str, text: str, hosts: Sequence[HostView], read: Callable[[HostView], bool]) -> Metric:
    family = _family(name, text, "host")
    for host in hosts:
        family.add_metric([host.host_id], read(host))
    return family


def _family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=list(labels))
