"""Why a job waits, computed when somebody asks, from the same queue and fleet that the plan uses."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from app.clock import to_rfc3339
from app.fleet.condition import SELF_TEST_FAILED, read_condition, root_state
from app.fleet.repository import HostView
from app.scheduling.plan import WaitingJob, accepts, could_accept, order_of, suitable, suits


@dataclass(frozen=True)
class Waiting:
    """A stable code, a sentence, and the place in the queue (1 is next)."""

    code: str
    message: str
    position: int

    def as_json(self) -> dict[str, object]:
        return {"code": self.code, "message": self.message, "position": self.position}


@dataclass(frozen=True)
class Known:
    """Which holders of devices the reader may be told of: jobs by id (None: all), people by the id of their hold."""

    jobs: Collection[str] | None
    holds: Mapping[str, str]


def explain(
    job: WaitingJob,
    waiting: Sequence[WaitingJob],
    hosts: Sequence[HostView],
    now: datetime,
    *,
    visible: Collection[str] | None = None,
    holders: Mapping[str, str] | None = None,
) -> Waiting:
    """The first reason that holds, from the most to the least specific.

    `visible` are the ids of jobs that the reader may know of; other holders of devices are only counted. None: all.
    `holders` says by a hold's id who has it and until when, for those that the reader may know of.

    Codes: `not_before`, `no_worker_online`, `framework_offline`, `root_unavailable`, `host_blocked`,
    `devices_unavailable`, `waiting_for_devices`, `behind_others`, `about_to_start`.
    """
    place = order_of(job, now)
    ahead = [other for other in waiting if other.id != job.id and order_of(other, now) < place]
    position = len(ahead) + 1
    if job.not_before is not None and job.not_before > now:
        return Waiting("not_before", f"not before {to_rfc3339(job.not_before)}", position)
    online = [host for host in hosts if host.online and not host.cordoned]
    if not online:
        return Waiting("no_worker_online", "no worker online", position)
    running = [host for host in online if could_accept(job, host)]
    reading = [host for host in running if host.reads(job.data_root)]
    able = [host for host in reading if accepts(job, host)]
    if running and not reading:
        return Waiting("root_unavailable", _unread(job, running), position)
    if reading and not able:
        return Waiting("host_blocked", _blocked(reading), position)
    if not able:
        return Waiting("framework_offline", _offline(job, online), position)
    return _for_devices(job, ahead, able, position, Known(visible, holders or {}))


def _offline(job: WaitingJob, hosts: Sequence[HostView]) -> str:
    """With the reason of each host that has the framework and found at its start that it does not work there."""
    runs = "takes anything new" if job.framework is None else f"runs {job.framework}"
    failed = [
        f"{host.host_name}: {remark.message}"
        for host in hosts
        for remark in read_condition(host.condition).problems
        if remark.code == SELF_TEST_FAILED and remark.message.startswith(f"{job.framework} ")
    ]
    detail = f" ({'; '.join(failed)})" if failed else ""
    return f"no worker online that {runs}{detail}"


def _unread(job: WaitingJob, hosts: Sequence[HostView]) -> str:
    root = job.data_root or ""
    problems = [root_state(host.condition, root).problem or "" for host in hosts]
    states = [
        f"{host.host_name}: {problem[:1].lower()}{problem[1:]}" for host, problem in zip(hosts, problems, strict=True)
    ]
    return f"no worker online can read the data root '{root}' ({' '.join(states).rstrip('.')})"


def _for_devices(
    job: WaitingJob,
    ahead: Sequence[WaitingJob],
    able: Sequence[HostView],
    position: int,
    known: Known,
) -> Waiting:
    if max(len(suitable(job, host)) for host in able) < job.device_count:
        return Waiting("devices_unavailable", _unavailable(job, able), position)
    best = max(able, key=lambda host: sum(device.free for device in suitable(job, host)))
    free = sum(device.free for device in suitable(job, best))
    if free < job.device_count:
        return Waiting("waiting_for_devices", _missing(job, free, best, known), position)
    rivals = sum(other.device_type == job.device_type for other in ahead)
    if rivals:
        who = "1 job" if rivals == 1 else f"{rivals} jobs"
        return Waiting("behind_others", f"first {who} for the same devices", position)
    return Waiting("about_to_start", "starts with the next scheduling pass", position)


def _blocked(hosts: Sequence[HostView]) -> str:
    reasons = "; ".join(f"{host.host_name}: {host.blocked}" for host in hosts)
    return f"no host that could run it takes jobs now ({reasons})"


def _missing(job: WaitingJob, free: int, host: HostView, known: Known) -> str:
    noun = "whole card" if _leaves_slices(job, [host]) else "device"
    what = f"waiting for {job.device_count} {noun}{'s' if job.device_count > 1 else ''}, {free} free"
    jobs = {device.job_id for device in suitable(job, host) if device.job_id}
    holds = {device.hold_id for device in suitable(job, host) if device.hold_id}
    named = sorted(holder for holder in jobs if known.jobs is None or holder in known.jobs)
    people = sorted(known.holds[hold] for hold in holds if hold in known.holds)
    hidden = [_others(len(jobs) - len(named), "job"), _others(len(holds) - len(people), "hold")]
    held_by = [*named, *people, *filter(None, hidden)]
    return f"{what}; held by {', '.join(held_by)}" if held_by else what


def _others(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' if count > 1 else ''} of other projects" if count else ""


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
