"""The worker's handle on a launcher: start an attempt's trainer, hear of its end, end it.

`Launcher` is the port; `ColdLauncher` execs a launcher for each attempt. Everything here may be called from any
thread, also from one that ends before the attempt: a launcher has no parent-death signal (that follows the thread),
the end of its socket is its death notice.
"""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import threading
from pathlib import Path
from typing import Any, Final

from workers.environment import framework_environment, trainer_environment
from workers.launch_port import (
    Busy,
    Ended,
    Event,
    Launcher,
    LauncherGone,
    LaunchFailed,
    LaunchRequest,
    Running,
    StartedEvent,
)
from workers.locks import lock_names
from workers.processes import LAUNCH_TAG, await_end, kill_launch, kill_process
from workers.protocol import Assignment, Stop, encode
from workers.sweep import sweep

__all__ = [
    "Busy",
    "ColdLauncher",
    "ColdRun",
    "Ended",
    "Event",
    "LaunchFailed",
    "LaunchRequest",
    "Launcher",
    "LauncherGone",
    "Running",
    "StartedEvent",
    "lock_names",
    "sweep",
    "trainer_environment",
]

PACKET_LIMIT: Final = 64 * 1024
CLOSE_MS: Final = 5_000
GONE_MS: Final = 2_000

_EVENTS: Final[dict[str, type[StartedEvent | Busy | Ended]]] = {"started": StartedEvent, "busy": Busy, "ended": Ended}


class ColdLauncher:
    """Execs one launcher for each attempt.

    `close_ms`: how long a launcher may take to end its trainer and prove it; after that it is frozen, and killed too.
    """

    def __init__(self, close_ms: int = CLOSE_MS) -> None:
        self._close_ms = close_ms

    def start(self, request: LaunchRequest) -> "ColdRun":
        launch = secrets.token_hex(16)
        Path(request.assignment.work_dir).mkdir(parents=True, exist_ok=True)
        request.lock_dir.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            control, launcher_end = _socket_pair(socket.SOCK_SEQPACKET, ours, theirs)
            messages, trainer_end = _socket_pair(socket.SOCK_STREAM, ours, theirs)
            output, trainer_output = os.pipe2(os.O_CLOEXEC)
            ours.callback(os.close, output)
            theirs.callback(os.close, trainer_output)
            assignment = os.memfd_create("assignment", os.MFD_CLOEXEC)
            theirs.callback(os.close, assignment)
            _fill(assignment, request.assignment)
            process = _exec_launcher(request, launch, launcher_end.fileno(), trainer_output)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # died already: events() tells
                socket.send_fds(control, [_run_packet(request)], [trainer_end.fileno(), trainer_output, assignment])
            ours.pop_all()
            return ColdRun(launch, process, control, messages, output, self._close_ms)


class ColdRun:
    """One attempt behind a launcher of its own. `stop`, `extend`, `send` and `close` may come from several threads."""

    def __init__(
        self,
        launch: str,
        process: subprocess.Popen[bytes],
        control: socket.socket,
        messages: socket.socket,
        output: int,
        close_ms: int,
    ) -> None:
        self.control = control
        self.messages = messages
        self.output = output
        self._launch = launch
        self._process = process
        self._close_ms = close_ms
        self._trainer: StartedEvent | None = None
        self._over = False
        self._closed = False
        self._closing = threading.Lock()

    def events(self) -> list[Event]:
        """What the launcher has said since the last call; does not block."""
        events: list[Event] = []
        while not self._over:
            try:
                packet = self.control.recv(PACKET_LIMIT)
            except BlockingIOError:
                break
            except OSError:
                packet = b""
            event = _parse(packet)
            self._over = not isinstance(event, StartedEvent)
            if isinstance(event, StartedEvent):
                self._trainer = event
            events.append(event)
        return events

    def stop(self, signum: int) -> None:
        """Signal the trainer's whole group."""
        self._tell({"type": "stop", "signal": int(signum)})

    def extend(self, until_boot_ns: int) -> None:
        """Move the deadline."""
        self._tell({"type": "until", "boot_ns": until_boot_ns})

    def send(self, message: Stop) -> None:
        """Send the trainer a message; one that has ended, or reads nothing, loses it."""
        with contextlib.suppress(OSError):
            self.messages.send(encode(message))

    def close(self) -> None:
        """End the attempt if it still runs, and give everything back; blocks for milliseconds, at worst for seconds.

        The end of the socket makes the launcher kill the group. When the launcher is dead, frozen or could not prove
        the end, the trainer and all else that carries the launch's tag is killed from here.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self.events()  # perhaps nobody has read yet who the trainer is
            self.control.close()
            if self._end_launcher() != 0:
                if self._trainer is not None:
                    kill_process(self._trainer.pid, self._trainer.start_time, wait_ms=GONE_MS)
                kill_launch(self._launch, wait_ms=GONE_MS)
            self.messages.close()
            os.close(self.output)

    def _end_launcher(self) -> int:
        pidfd = os.pidfd_open(self._process.pid)
        try:
            if not await_end(pidfd, self._close_ms):
                self._process.kill()
        finally:
            os.close(pidfd)
        return self._process.wait()

    def _tell(self, message: dict[str, Any]) -> None:
        # A launcher that has left needs no order, and one that is frozen is dealt with by close().
        with contextlib.suppress(OSError):
            self.control.send(json.dumps(message).encode())


def _exec_launcher(request: LaunchRequest, launch: str, control: int, output: int) -> "subprocess.Popen[bytes]":
    assignment = request.assignment
    # -P: without it the working directory comes first on the path, and a file there could be taken for torch.
    # The launcher writes to the attempt's log too, so that a broken environment explains itself there.
    command = [str(request.interpreter), "-P", "-m", "workers.launcher"]
    try:
        return subprocess.Popen(
            [*command, "--socket", str(control), "--worker-pid", str(os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=assignment.work_dir,
            env={**framework_environment(assignment.spec.framework), **request.environment, LAUNCH_TAG: launch},
            pass_fds=[control],
            start_new_session=True,
        )
    except OSError as error:
        raise LaunchFailed(request.interpreter, error.strerror or str(error)) from error


def _run_packet(request: LaunchRequest) -> bytes:
    assignment = request.assignment
    names = lock_names(assignment.job_id, [device.id for device in assignment.devices])
    locks = [str(request.lock_dir / name) for name in names]
    run = {"type": "run", "entry": request.entry, "locks": locks, "until": request.until_boot_ns}
    return json.dumps(run).encode()


def _socket_pair(
    kind: socket.SocketKind, ours: contextlib.ExitStack, theirs: contextlib.ExitStack
) -> tuple[socket.socket, socket.socket]:
    """Two ends, ours first, which does not block; each is closed with its stack from now on."""
    our_end, their_end = socket.socketpair(socket.AF_UNIX, kind)
    ours.callback(our_end.close)
    theirs.callback(their_end.close)
    our_end.settimeout(0)
    return our_end, their_end


def _fill(descriptor: int, assignment: Assignment) -> None:
    """Put the assignment into a file without a name: it may be larger than a packet, and nobody else can open it."""
    with open(descriptor, "wb", closefd=False) as file:
        file.write(assignment.model_dump_json().encode())
    os.lseek(descriptor, 0, os.SEEK_SET)


def _parse(packet: bytes) -> Event:
    if not packet:
        return LauncherGone()
    fields = json.loads(packet)
    return _EVENTS[fields.pop("type")](**fields)
