"""Which waiting job starts where: a pure function of the queue, the fleet and the time.

Order: priority class, then age. A job gains one class for every six hours it waits, so nothing starves. A job gets all
its devices at once on one host. A job that does not fit yet holds back every later job from the devices that it could
use on the hosts it waits for: without an estimate of run times, letting smaller jobs pass would starve the large ones.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from app.fleet.repository import DeviceView, HostView

AGE_CLASS_S: Final = 6 * 3600.0


@dataclass(frozen=True)
class WaitingJob:
    """What the plan needs to know of a queued job; memory is the least that each device must have, in bytes.

    A person's wish to hold devices is planned like a job: of no framework, and perhaps for certain workers only.
    `data_root` is where its table lies, if that is read in place.
    """

    id: str
    framework: str | None
    device_type: str
    device_count: int
    priority: int
    queued_at: datetime
    not_before: datetime | None = None
    min_device_memory_bytes: int | None = None
    device_name: str | None = None
    worker_ids: frozenset[str] | None = None
    data_root: str | None = None


@dataclass(frozen=True)
class Placement:
    """A job, the host it goes to, and exactly `device_count` devices of that host."""

    job_id: str
    worker_id: str
    device_ids: tuple[str, ...]


@dataclass(frozen=True)
class Plan:
    """Placements in the order in which they were decided."""

    placements: list[Placement] = field(default_factory=list)


def order_of(job: WaitingJob, now: datetime) -> tuple[int, datetime, str]:
    """The sort key of the queue: higher class first, then the longer wait, then the id."""
    waited_s = max(0.0, (now - job.queued_at).total_seconds())
    return (-(job.priority + int(waited_s // AGE_CLASS_S)), job.queued_at, job.id)


def suits(job: WaitingJob, device: DeviceView) -> bool:
    """Whether the device is of the kind, memory and name that the job asks for, free or not.

    A CUDA process sees at most one MIG slice, so a slice suits no job of several devices (NVIDIA, MIG User Guide).
    """
    if device.kind != job.device_type or (device.is_slice and job.device_count > 1):
        return False
    wanted_bytes = job.min_device_memory_bytes
    if wanted_bytes is not None and (device.memory_bytes is None or device.memory_bytes < wanted_bytes):
        return False
    return job.device_name is None or job.device_name.casefold() in device.name.casefold()


def suitable(job: WaitingJob, host: HostView) -> list[DeviceView]:
    """The host's devices that could serve the job once they are free."""
    return [device for device in host.devices if device.usable and suits(job, device)]


def accepts(job: WaitingJob, host: HostView) -> bool:
    """Whether the host takes new jobs of this framework now."""
    return could_accept(job, host) and host.blocked is None and host.reads(job.data_root)


def could_accept(job: WaitingJob, host: HostView) -> bool:
    """Whether it would, if nothing on the host itself kept it from taking jobs (a full disk, a silent driver)."""
    if job.worker_ids is not None and host.worker_id not in job.worker_ids:
        return False
    return host.online and not host.cordoned and (job.framework is None or job.framework in host.frameworks)


def plan(waiting: Iterable[WaitingJob], fleet: Sequence[HostView], now: datetime) -> Plan:
    """Place what fits, in order; never two jobs on one device, never half of a job's devices."""
    spoken_for: set[str] = set()
    placements: list[Placement] = []
    for job in sorted(waiting, key=lambda j: order_of(j, now)):
        if job.not_before is not None and job.not_before > now:
            continue
        hosts = [host for host in fleet if accepts(job, host) and len(suitable(job, host)) >= job.device_count]
        placement = _place(job, hosts, spoken_for)
        if placement is None:
            spoken_for.update(device.id for host in hosts for device in suitable(job, host))
            continue
        spoken_for.update(placement.device_ids)
        placements.append(placement)
    return Plan(placements)


def _place(job: WaitingJob, hosts: Sequence[HostView], spoken_for: set[str]) -> Placement | None:
    """The tightest fit: the host with the fewest free devices left over, and on it the smallest devices that suit."""
    best: tuple[int, int, Placement] | None = None
    for index, host in enumerate(hosts):
        free = [device for device in suitable(job, host) if device.free and device.id not in spoken_for]
        if len(free) < job.device_count:
            continue
        free.sort(key=lambda device: (device.memory_bytes or 0, device.position, device.id))
        chosen = tuple(device.id for device in free[: job.device_count])
        rank = (len(free) - job.device_count, index, Placement(job.id, host.worker_id, chosen))
        if best is None or rank[:2] < best[:2]:
            best = rank
    return best[2] if best else None
