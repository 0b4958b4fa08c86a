"""One attempt in a process of its own: reads the assignment, verifies what it got, trains, and says how it ended.

The launcher forks this process and calls `main`. It knows neither a database nor a broker, imports one framework and
never the other, and always sends exactly one `done` or `failed`, unless it is killed.
"""

import faulthandler
import gc
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from app.spec.shared import DeviceType
from workers.backends.base import Backend, DeviceUnavailable, Prepared, load_backend
from workers.channel import Channel, ChannelContext
from workers.context import Context
from workers.environment import visible_devices
from workers.failure import failure_of
from workers.loop import train
from workers.narration import on_what, say
from workers.protocol import Assignment, Device, Done, Failed, Started
from workers.user_code import prepare_user_code

WATCHED: Final = ("celery", "fastapi", "keras", "redis", "sqlalchemy", "tensorflow", "torch")
"""What `modules` of the last message looks for: one framework may be loaded, and nothing of the server."""

Load = Callable[[str], Backend]
Train = Callable[[Assignment, Backend, Context], Done]


def main(messages: int, assignment: int) -> int:
    """Run the attempt. Takes the descriptors of the message socket and of the assignment; gives the exit status."""
    # The collector would walk through hundreds of thousands of objects again and again while a framework is imported.
    gc.disable()
    faulthandler.enable()  # a crash in native code leaves its Python stack in the log
    channel = Channel(socket.socket(fileno=messages))

    def train_until_told(job: Assignment, backend: Backend, context: Context) -> Done:
        # Only from here on: before, while the framework is imported, TERM ends the process, and nothing is lost.
        signal.signal(signal.SIGTERM, channel.on_signal)
        return train(job, backend, context)

    last = attempt(channel, assignment, exec_environment(), load_backend, train_until_told)
    channel.send(last.model_copy(update={"modules": [name for name in WATCHED if name in sys.modules]}))
    return 0 if isinstance(last, Done) else 1


def attempt(channel: Channel, assignment: int, environment: dict[str, str], load: Load, train: Train) -> Done | Failed:
    """Train, and turn whatever happens into the last message."""
    backend = None
    try:
        job = Assignment.model_validate_json(_read(assignment))
        verify_devices(job.spec.device_type, job.devices)
        verify_environment(environment, job.devices)
        prepare_user_code(job)
        backend = load(job.spec.framework)
        prepared = backend.prepare(job.devices, job.threads)
        gc.freeze()
        gc.enable()
        channel.send(_started(prepared, environment))
        say(on_what(prepared))
        return train(job, backend, ChannelContext(channel, Path(job.work_dir)))
    except Exception as error:  # noqa: BLE001 - every error becomes the last message, with its traceback
        failure = failure_of(error, backend)
        say(f"Failed: {failure.message}")
        return failure


def exec_environment() -> dict[str, str]:
    """Read the environment that the interpreter was exec'ed with, which is what libraries have seen of it."""
    variables = Path("/proc/self/environ").read_bytes().decode(errors="replace").split("\0")
    return dict(variable.split("=", 1) for variable in variables if "=" in variable)


def verify_devices(device_type: DeviceType, devices: Sequence[Device]) -> None:
    """Refuse to train a job for cards on anything else, whoever made the mistake.

    Raises:
        DeviceUnavailable: when the job asks for CUDA devices and has none, or other ones.
    """
    others = [device.id for device in devices if device.kind == "cpu"]
    if device_type == "cuda" and (others or not devices):
        held = ", ".join(others) or "no device"
        raise DeviceUnavailable(f"The job asks for CUDA devices and was given {held}. Nothing was trained on the CPU.")


def verify_environment(environment: Mapping[str, str], devices: Sequence[Device]) -> None:
    """Refuse to train unless exactly the leased devices were made visible, before the interpreter started.

    Raises:
        DeviceUnavailable: when a variable is absent (then every card is visible) or other than it must be.
    """
    wanted = {"CUDA_VISIBLE_DEVICES": visible_devices(devices), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    for name, value in wanted.items():
        found = environment.get(name)
        if found != value:
            shown = "absent" if found is None else f"'{found}'"
            raise DeviceUnavailable(f"The trainer's environment has {name} {shown} where the lease says '{value}'.")


def _started(prepared: Prepared, environment: dict[str, str]) -> Started:
    return Started(
        framework=prepared.framework,
        framework_version=prepared.version,
        device_kind=prepared.device_kind,
        devices=list(prepared.devices),
        simulated=prepared.simulated,
        environment=environment,
        pid=os.getpid(),
        pgid=os.getpgid(0),
        threads=prepared.threads,
    )


def _read(descriptor: int) -> bytes:
    with open(descriptor, "rb") as file:
        return file.read()
