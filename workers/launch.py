"""The worker's handle on a launcher: start an attempt's trainer, hear of its end, end it.

`Launcher` is the port; `ColdLauncher` execs a launcher for each attempt. Everything here may be called from any
thread, also from one that ends before the attempt: a launcher has no parent-death signal (that follows the thread),
the end of its socket is its death notice.

Where there is a pool of users, each trainer gets one of its own. The work folder is then that user's while the attempt
runs, and the worker's again when `close` returns.
"""

import contextlib
import json
import os
import secrets
import socket
import subprocess
import threading
from dataclasses import dataclass
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
from workers.protocol import Assignment, ModelErrand, ScriptAssignment, Stop, encode
from workers.sweep import sweep
from workers.trainer_user import NoUserFree, TrainerUsers

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
TEMPORARY: Final = "tmp"
"""The temporary folder of code of a user's own, in its work folder."""
CLOSE_MS: Final = 5_000
GONE_MS: Final = 2_000

_EVENTS: Final[dict[str, type[StartedEvent | Busy | Ended]]] = {"started": StartedEvent, "busy": Busy, "ended": Ended}


class ColdLauncher:
    """Execs one launcher for each attempt.

    `close_ms`: how long a launcher may take to end its trainer and prove it; after that it is frozen, and killed too.
    `users`: where trainers get users of their own from; None: they run as this process does.
    """

    def __init__(self, close_ms: int = CLOSE_MS, users: TrainerUsers | None = None) -> None:
        self._close_ms = close_ms
        self._users = users

    def start(self, request: LaunchRequest) -> "ColdRun":
        work_dir = Path(request.assignment.work_dir)
        work_dir.mkdir(parents=True, exist_ok=True)
        if request.sandbox is not None:
            (work_dir / TEMPORARY).mkdir(mode=0o700, exist_ok=True)  # by us: it is the trainer's after the hand-over
        request.lock_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        user = None if self._users is None else _User.given(self._users, request)
        try:
            return self._start(request, user)
        except BaseException:
            if user is not None:
                user.end()
            raise

    def _start(self, request: LaunchRequest, user: "_User | None") -> "ColdRun":
        launch = secrets.token_hex(16)
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            control, launcher_end = _socket_pair(socket.SOCK_SEQPACKET, ours, theirs)
            messages, trainer_end = _socket_pair(socket.SOCK_STREAM, ours, theirs)
            output, trainer_output = os.pipe2(os.O_CLOEXEC)
            ours.callback(os.close, output)
            theirs.callback(os.close, trainer_output)
            assignment = os.memfd_create("assignment", os.MFD_CLOEXEC)
            theirs.callback(os.close, assignment)
            _fill(assignment, request.assignment)
            process = _exec_launcher(request, user, launch, launcher_end.fileno(), trainer_output)
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # died already: events() tells
                packet = _run_packet(request, user)
                socket.send_fds(control, [packet], [trainer_end.fileno(), trainer_output, assignment])
            ours.pop_all()
            return ColdRun(launch, process, control, messages, output, self._close_ms, user)


@dataclass(frozen=True)
class _User:
    """The user that one attempt has got, with the folder that is lent to it."""

    users: TrainerUsers
    uid: int
    work_dir: Path

    @classmethod
    def given(cls, users: TrainerUsers, request: LaunchRequest) -> "_User":
        try:
            user = cls(users, users.take(_locks(request)), Path(request.assignment.work_dir))
        except NoUserFree as error:
            told = "No user was free for the trainer on this host: TRAINSHED_TRAINER_UIDS is too small, or in use."
            raise LaunchFailed(request.interpreter, str(error), told) from error
        try:
            users.hand_over(user.work_dir, user.uid)
        except OSError as error:
            user.end()
            raise LaunchFailed(request.interpreter, f"its work folder cannot be handed over: {error}") from error
        return user

    @property
    def environment(self) -> dict[str, str]:
        """Such a user has no entry in any list of users, and may write in its work folder alone."""
        return {"USER": "trainer", "LOGNAME": "trainer", "TMPDIR": str(self.work_dir)}

    def end(self, *, kill: bool = False) -> None:
        self.users.take_back(self.work_dir, self.uid, kill=kill)


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
        user: _User | None = None,
    ) -> None:
        self.control = control
        self.messages = messages
        self.output = output
        self._launch = launch
        self._process = process
        self._close_ms = close_ms
        self._user = user
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
        the end, the trainer and all else that carries the launch's tag, or runs as its user, is killed from here.
        """
        with self._closing:
            if self._closed:
                return
            self._closed = True
            self.events()  # perhaps nobody has read yet who the trainer is
            self.control.close()
            proven = self._end_launcher() == 0
            try:
                if not proven:
                    self._kill()
                if self._user is not None:
                    self._user.end(kill=not proven)
            finally:
                self.messages.close()
                os.close(self.output)

    def _kill(self) -> None:
        if self._trainer is not None:
            kill_process(self._trainer.pid, self._trainer.start_time, wait_ms=GONE_MS)
        kill_launch(self._launch, wait_ms=GONE_MS)

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


def _exec_launcher(
    request: LaunchRequest, user: _User | None, launch: str, control: int, output: int
) -> "subprocess.Popen[bytes]":
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
            env={
                **framework_environment(request.framework),
                **request.environment,
                **({} if user is None else user.environment),
                **({} if request.sandbox is None else {"TMPDIR": f"{assignment.work_dir}/{TEMPORARY}"}),
                LAUNCH_TAG: launch,
            },
            pass_fds=[control],
            start_new_session=True,
        )
    except OSError as error:
        raise LaunchFailed(request.interpreter, error.strerror or str(error)) from error


def _run_packet(request: LaunchRequest, user: _User | None) -> bytes:
    run = {
        "type": "run",
        "entry": request.entry,
        "locks": [str(request.lock_dir / name) for name in _locks(request)],
        "until": request.until_boot_ns,
        "uid": None if user is None else user.uid,
        "sandbox": request.sandbox,
    }
    return json.dumps(run).encode()


def _locks(request: LaunchRequest) -> list[str]:
    assignment = request.assignment
    return lock_names(assignment.job_id, [device.id for device in assignment.devices])


def _socket_pair(
    kind: socket.SocketKind, ours: contextlib.ExitStack, theirs: contextlib.ExitStack
) -> tuple[socket.socket, socket.socket]:
    """Two ends, ours first, which does not block; each is closed with its stack from now on."""
    our_end, their_end = socket.socketpair(socket.AF_UNIX, kind)
    ours.callback(our_end.close)
    theirs.callback(their_end.close)
    our_end.settimeout(0)
    return our_end, their_end


def _fill(descriptor: int, assignment: Assignment | ScriptAssignment | ModelErrand) -> None:
    """Put the assignment into a file without a name: it may be larger than a packet, and nobody else can open it."""
    with open(descriptor, "wb", closefd=False) as file:
        file.write(assignment.model_dump_json().encode())
    os.lseek(descriptor, 0, os.SEEK_SET)


def _parse(packet: bytes) -> Event:
    if not packet:
        return LauncherGone()
    fields = json.loads(packet)
    return _EVENTS[fields.pop("type")](**fields)
