"""What is decided when a job is submitted: on which kind of device it runs, and whether any host can ever run it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final, Literal

from app.errors import TrainshedError
from app.fleet.repository import HostView
from app.scheduling.plan import WaitingJob, suits

DeviceType = Literal["cpu", "cuda"]
_BECAME_CPU: Final = (
    "device_type 'auto' became 'cpu': no host has or ever had a CUDA device. "
    "Ask for 'cuda' to wait for one, or for 'cpu' to say that the CPU is meant."
)


class InsufficientDevices(TrainshedError):
    """No known host could ever run the job; `maximum` is what the best one has."""

    code: ClassVar[str] = "insufficient_devices"

    def __init__(self, pointer: str, message: str, suggestion: str, maximum: int) -> None:
        super().__init__(message)
        self.pointer = pointer
        self.suggestion = suggestion
        self.maximum = maximum


@dataclass(frozen=True)
class DeviceChoice:
    """The resolved kind, and what the user should know about it."""

    device_type: DeviceType
    warnings: list[str]


def resolve_device_type(asked: Literal["auto", "cuda", "cpu"], hosts: Sequence[HostView]) -> DeviceChoice:
    """`auto` means `cuda` wherever a CUDA device is or ever was, so a lost driver never turns into a slow CPU run."""
    if asked != "auto":
        return DeviceChoice(asked, [])
    if any(device.kind == "cuda" for host in hosts for device in host.devices):
        return DeviceChoice("cuda", [])
    if any(host.reason for host in hosts):
        return DeviceChoice("cuda", [])
    return DeviceChoice("cpu", [_BECAME_CPU])


def check_possible(job: WaitingJob, hosts: Sequence[HostView]) -> None:
    """Refuse what no known host could ever run; with no host, or with one that cannot list its devices, accept.

    Raises:
        InsufficientDevices: names the field, the largest number that is possible and a value that works.
    """
    if not hosts or any(host.reason for host in hosts):
        return
    fitting = max(sum(suits(job, device) for device in host.devices) for host in hosts)
    if fitting >= job.device_count:
        return
    if any(_cards_and_slices(job, host)[1] for host in hosts):
        _refuse_slices(job, hosts)
    of_kind = max(sum(device.kind == job.device_type for device in host.devices) for host in hosts)
    if fitting < of_kind:
        _refuse_filters(job, fitting, hosts)
    if of_kind == 0:
        others = sorted({device.kind for host in hosts for device in host.devices})
        raise InsufficientDevices(
            "/device_type",
            f"No host has a device of type '{job.device_type}', so this job could never start.",
            f"Use device_type: {others[0]}." if others else "Register a host with devices first.",
            0,
        )
    raise InsufficientDevices(
        "/device_count",
        f"device_count is {job.device_count}; the largest host has {of_kind} devices of type '{job.device_type}'.",
        f"Use a device_count of at most {of_kind}.",
        of_kind,
    )


def _refuse_slices(job: WaitingJob, hosts: Sequence[HostView]) -> None:
    """Slices would do, but for jobs of one device alone."""
    whole, slices = max(_cards_and_slices(job, host) for host in hosts)
    wishes = f" with {_wishes(job)}" if _wishes(job) else ""
    raise InsufficientDevices(
        "/device_count",
        f"device_count is {job.device_count}; the largest host has {_count(whole, 'whole card')} and "
        f"{_count(slices, 'MIG slice')}{wishes}. A CUDA process sees at most one slice, and nothing beside it.",
        f"Use a device_count of at most {whole}, or device_count: 1." if whole > 1 else "Use device_count: 1.",
        max(whole, 1),
    )


def _cards_and_slices(job: WaitingJob, host: HostView) -> tuple[int, int]:
    """How many whole devices of the host suit a job of several, and how many slices would suit it if it wanted one."""
    suiting = [device for device in host.devices if suits(replace(job, device_count=1), device)]
    slices = sum(device.is_slice for device in suiting)
    return len(suiting) - slices, slices


def _count(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'' if number == 1 else 's'}"


def _wishes(job: WaitingJob) -> str:
    wanted = [] if job.device_name is None else [f"a name that contains '{job.device_name}'"]
    if job.min_device_memory_bytes is not None:
        wanted.append(f"at least {job.min_device_memory_bytes} bytes of memory")
    return " and ".join(wanted)


def _refuse_filters(job: WaitingJob, fitting: int, hosts: Sequence[HostView]) -> None:
    names = sorted({device.name for host in hosts for device in host.devices if device.kind == job.device_type})
    largest = max(
        (device.memory_bytes or 0 for host in hosts for device in host.devices if device.kind == job.device_type),
        default=0,
    )
    raise InsufficientDevices(
        "/device_name" if job.device_name is not None else "/min_device_memory_bytes",
        f"device_count is {job.device_count}, but at most {fitting} devices of one host have {_wishes(job)}.",
        f"Known devices: {', '.join(names)}; the largest has {largest} bytes.",
        fitting,
    )
