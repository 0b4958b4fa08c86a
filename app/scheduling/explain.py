"""Why a job waits, computed when somebody asks, from the same queue and fleet that the plan uses."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.clock import to_rfc3339
from app.fleet.repository import HostView
from app.scheduling.plan import WaitingJob, accepts, order_of, suitable, suits


@dataclass(frozen=True)
class Waiting:
    """A stable code, a sentence, and the place in the queue (1 is next)."""

    code: str
    message: str
    position: int

    def as_json(self) -> dict[str, object]:
        return {"code": self.code, "message": self.message, "position": self.position}


def explain(
    job: WaitingJob,
    waiting: Sequence[WaitingJob],
    hosts: Sequence[HostView],
    now: datetime,
    *,
    visible: Collection[str] | None = None,
) -> Waiting:
    """The first reason that holds, from the most to the least specific.

    `visible` are the ids of jobs that the reader may know of; other holders of devices are only counted. None: all.

    Codes: `not_before`, `no_worker_online`, `framework_offline`, `devices_unavailable`, `waiting_for_devices`,
    `behind_others`, `about_to_start`.
    """
    place = order_of(job, now)
    ahead = [other for other in waiting if other.id != job.id and order_of(other, now) < place]
    position = len(ahead) + 1
    if job.not_before is not None and job.not_before > now:
        return Waiting("not_before", f"not before {to_rfc3339(job.not_before)}", position)
    online = [host for host in hosts if host.online and not host.cordoned]
    if not online:
        return Waiting("no_worker_online", "no worker online", position)
    able = [host for host in online if accepts(job, host)]
    if not able:
        return Waiting("framework_offline", f"no worker online that runs {job.framework}", position)
    return _for_devices(job, ahead, able, position, visible)


def _for_devices(
    job: WaitingJob,
    ahead: Sequence[WaitingJob],
    able: Sequence[HostView],
    position: int,
    visible: Collection[str] | None,
) -> Waiting:
    if max(len(suitable(job, host)) for host in able) < job.device_count:
        return Waiting("devices_unavailable", _unavailable(job, able), position)
    best = max(able, key=lambda host: sum(device.free for device in suitable(job, host)))
    free = sum(device.free for device in suitable(job, best))
    if free < job.device_count:
        return Waiting("waiting_for_devices", _missing(job, free, best, visible), position)
    rivals = sum(other.device_type == job.device_type for other in ahead)
    if rivals:
        who = "1 job" if rivals == 1 else f"{rivals} jobs"
        return Waiting("behind_others", f"first {who} for the same devices", position)
    return Waiting("about_to_start", "starts with the next scheduling pass", position)


def _missing(job: WaitingJob, free: int, host: HostView, visible: Collection[str] | None) -> str:
    noun = "whole card" if _leaves_slices(job, [host]) else "device"
    what = f"waiting for {job.device_count} {noun}{'s' if job.device_count > 1 else ''}, {free} free"
    all_holders = {device.job_id for device in suitable(job, host) if device.job_id}
    holders = sorted(holder for holder in all_holders if visible is None or holder in visible)
    hidden = len(all_holders) - len(holders)
    if hidden:
        holders.append(f"{hidden} job{'s' if hidden > 1 else ''} of other projects")
    return f"{what}; held by {', '.join(holders)}" if holders else what


def _unavailable(job: WaitingJob, hosts: Sequence[HostView]) -> str:
    reasons = [f"{host.host_name}: {host.reason}" for host in hosts if host.reason]
    for host in hosts:
        sick = [device for device in host.devices if suits(job, device) and not device.usable]
        reasons += [f"{device.id}: {device.reason or device.health}" for device in sick]
    if _leaves_slices(job, hosts):
        reasons.append("MIG slices do not count, since a CUDA process sees at most one")
    detail = "; ".join(reasons)
    base = f"no host online has {job.device_count} usable devices of type {job.device_type}"
    return f"{base} ({detail})" if detail else base


def _leaves_slices(job: WaitingJob, hosts: Sequence[HostView]) -> bool:
    """Whether there are slices that the reader may have counted, although a job of several devices cannot have them."""
    slices = any(device.is_slice for host in hosts for device in host.devices)
    return slices and job.device_count > 1 and job.device_type == "cuda"
