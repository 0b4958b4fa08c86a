"""Real trainer processes that a test may kill, and a store that takes their checkpoints as a worker does."""

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

from workers.checkpoints import verify
from workers.environment import framework_environment, trainer_environment
from workers.fault_points import VARIABLE
from workers.protocol import Assignment, Checkpoint, Decoder, Done, Failed, Message, Point, Report, Started

LIMIT_S = 120.0

# As the launcher ends a trainer: without the interpreter's teardown, in which ranks were seen to hang.
_PROGRAM = "import os, sys; from workers.trainer import main; os._exit(main(int(sys.argv[1]), int(sys.argv[2])))"


@dataclass
class Run:
    """What one trainer has said until it ended; `stored`: its checkpoints, in the order in which they came."""

    assignment: Assignment
    store: Path
    messages: list[Message] = field(default_factory=list)
    stored: list[tuple[Checkpoint, Path]] = field(default_factory=list)
    seconds: float = 0.0
    output: str = ""
    status: int | None = None

    @property
    def done(self) -> Done:
        last = self.messages[-1]
        assert isinstance(last, Done), (last, self.output)
        return last

    @property
    def resumed_from(self) -> int:
        """The step that it went on from; 0: from the start."""
        resume = self.assignment.resume
        return 0 if resume is None else verify(Path(self.assignment.work_dir) / resume).step

    @property
    def points(self) -> list[Point]:
        return [point for message in self.messages if isinstance(message, Report) for point in message.points]

    def take(self, message: Message) -> None:
        self.messages.append(message)
        if isinstance(message, Checkpoint):
            folder = Path(self.assignment.work_dir) / message.path
            verify(folder)
            place = self.store / f"{len(self.stored)}-{message.step}"
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(folder, place)
            self.stored.append((message, place))


def run_trainer(assignment: Assignment, *, fault: str | None = None, kill_after_s: float | None = None) -> Run:
    """Run a trainer to its end; `fault`: where it kills itself; `kill_after_s`: seconds from `started` to a SIGKILL."""
    work_dir = Path(assignment.work_dir)
    work_dir.mkdir(parents=True, exist_ok=True)
    run = Run(assignment, work_dir.parent / f"{work_dir.name}-store")
    ours, theirs = socket.socketpair()
    with ours, (work_dir / "output").open("w+") as output:
        process = _spawn(assignment, theirs, output.fileno(), fault)
        theirs.close()
        try:
            _follow(run, ours, process, kill_after_s)
            run.status = process.wait(LIMIT_S)
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        run.output = output.read()
    return run


def _spawn(
    assignment: Assignment, messages: socket.socket, output: int, fault: str | None
) -> "subprocess.Popen[bytes]":
    work_dir = Path(assignment.work_dir)
    environment = trainer_environment(assignment.devices, assignment.threads, work_dir, os.environ)
    environment |= framework_environment(assignment.spec.framework)
    environment |= {VARIABLE: fault} if fault else {}
    memory = os.memfd_create("assignment")
    try:
        with open(memory, "wb", closefd=False) as file:
            file.write(assignment.model_dump_json().encode())
        os.lseek(memory, 0, os.SEEK_SET)
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _PROGRAM, str(messages.fileno()), str(memory)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=work_dir,
            env=environment,
            pass_fds=[messages.fileno(), memory],
            start_new_session=True,
        )
    finally:
        os.close(memory)


def _follow(run: Run, ours: socket.socket, process: "subprocess.Popen[bytes]", kill_after_s: float | None) -> None:
    """Take in what the trainer says until it closes its end; kill it when its time has come."""
    decoder = Decoder()
    began: float | None = None
    deadline = time.monotonic() + LIMIT_S
    while True:
        now = time.monotonic()
        assert now < deadline, f"The trainer did not end: {run.messages[-1:]}"
        if kill_after_s is not None and began is not None and now >= began + kill_after_s:
            process.send_signal(signal.SIGKILL)
            kill_after_s = None
        wait_s = 1.0 if kill_after_s is None or began is None else max(0.0, began + kill_after_s - now)
        if not select.select([ours], [], [], wait_s)[0]:
            continue
        try:
            data = ours.recv(1 << 20)
        except ConnectionResetError:
            return
        if not data:
            return
        for message in decoder.feed(data):
            run.take(message)
            if isinstance(message, Started):
                began = time.monotonic()
            if isinstance(message, Done | Failed) and began is not None:
                run.seconds = time.monotonic() - began


def next_attempt(run: Run, work_dir: Path) -> Assignment:
    """The assignment that goes on from the newest checkpoint that was stored; from the start where there is none."""
    work_dir.mkdir(parents=True)
    changed: dict[str, object] = {"work_dir": str(work_dir), "attempt": run.assignment.attempt + 1, "resume": None}
    newest = run.stored[-1][1] if run.stored else None
    if newest is None and run.assignment.resume is not None:
        newest = Path(run.assignment.work_dir) / run.assignment.resume
    if newest is not None:
        shutil.copytree(newest, work_dir / "resume")
        changed["resume"] = "resume"
    return run.assignment.model_copy(update=changed)
