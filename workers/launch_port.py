"""The port between a worker and what starts its trainers: what to run, what is heard of it, and how it is ended."""

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from app.errors import TrainshedError
from workers.protocol import Assignment, ModelErrand, ScriptAssignment, Stop
from workers.sandbox import Sandbox

TRAINER: Final = "workers.trainer:main"
SCRIPT_HOST: Final = "workers.scripts.host:main"


class LaunchFailed(TrainshedError):
    """The launcher could not be started at all: nothing runs, no lock is held.

    The message is for the worker's log; `told`, without paths of the host, is for the user.
    """

    code = "launch_failed"

    def __init__(
        self,
        interpreter: Path,
        reason: str,
        told: str = "The worker's interpreter for {framework} could not be started.",
    ) -> None:
        super().__init__(
            f"The trainer's interpreter '{interpreter}' could not be started: {reason}. "
            "Name the Python of the framework's environment, for example /opt/torch/bin/python."
        )
        self.interpreter = interpreter
        self.told = told


@dataclass(frozen=True)
class LaunchRequest:
    """What to run, and until when: `until_boot_ns` is a time of CLOCK_BOOTTIME, past it the group is killed.

    `environment` is all that the trainer gets, besides what its framework needs and a tag. `entry` names the
    function that runs in the trainer: it takes the descriptors of the messages and of the assignment. With a `sandbox`
    it runs code of a user's, which gets no more than that says.
    """

    interpreter: Path
    environment: dict[str, str]
    assignment: Assignment | ScriptAssignment | ModelErrand
    lock_dir: Path
    until_boot_ns: int
    entry: str = TRAINER
    sandbox: Sandbox | None = None

    @property
    def framework(self) -> str:
        """Which framework the trainer, or the script, runs with."""
        if isinstance(self.assignment, Assignment):
            return self.assignment.spec.framework
        return self.assignment.framework


@dataclass(frozen=True)
class StartedEvent:
    """The trainer was forked: its pid, its group (a session of its own), and its start in clock ticks since boot."""

    pid: int
    pgid: int
    start_time: int


@dataclass(frozen=True)
class Busy:
    """Nothing was started: this lock file is held by somebody else. The last event."""

    lock: str


@dataclass(frozen=True)
class Ended:
    """The trainer has ended, by a code or by a signal. The last event.

    `survivors`: a descendant may be left or a lock is still held, so the devices are not free. `deadline`: it was
    killed because `until_boot_ns` had passed (also when that was before the start: then no StartedEvent came).
    """

    code: int | None
    signal: int | None
    max_rss_bytes: int
    survivors: bool
    deadline: bool = False


@dataclass(frozen=True)
class LauncherGone:
    """The launcher died without a report. The last event; `close` makes sure that the trainer is dead too."""


Event = StartedEvent | Busy | Ended | LauncherGone


class Running(Protocol):
    """One attempt. Poll `messages`, `output` and `control`; after the last event poll `control` no more."""

    messages: socket.socket
    output: int
    control: socket.socket

    def events(self) -> list[Event]: ...
    def stop(self, signum: int) -> None: ...
    def extend(self, until_boot_ns: int) -> None: ...
    def send(self, message: Stop) -> None: ...
    def close(self) -> None: ...


class Launcher(Protocol):
    """Starts attempts. Raises LaunchFailed when there is nothing to start with."""

    def start(self, request: LaunchRequest) -> Running: ...
