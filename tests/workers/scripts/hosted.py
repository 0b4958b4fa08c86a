"""Script hosts as a test sees them: real processes with a socket, a log and a bundle, and no service."""

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from workers.protocol import (
    ArchiveLimits,
    Artifact,
    Decoder,
    Device,
    Done,
    Failed,
    Message,
    Notice,
    Point,
    Report,
    ScriptAssignment,
    ScriptLimits,
    Started,
    Stop,
    encode,
)

LIMIT_S = 60.0
ROOT = Path(__file__).parents[3]
CPU = Device(id="cpu-0@host", kind="cpu", name="CPU")
CPUS = [CPU, Device(id="cpu-1@host", kind="cpu", name="CPU")]

_PROGRAM = "import os, sys; from workers.scripts.host import main; os._exit(main(int(sys.argv[1]), int(sys.argv[2])))"

Files = Mapping[str, str | bytes]
M = TypeVar("M", bound=Message)


def assignment(work_dir: Path, command: Sequence[str], **changes: Any) -> ScriptAssignment:
    fields: dict[str, Any] = {
        "job_id": "job_1",
        "attempt": 1,
        "framework": "python",
        "interpreter": sys.executable,
        "command": list(command),
        "processes": "one",
        "variables": {},
        "devices": [CPU],
        "threads": 2,
        "work_dir": str(work_dir),
        "seed": 7,
        "limits": ScriptLimits(
            archive=ArchiveLimits(entries=1_000, total_bytes=1 << 30, file_bytes=1 << 30, ratio=200),
            max_output_bytes=1 << 28,
            max_output_files=100,
        ),
    }
    return ScriptAssignment(**{**fields, **changes})


def bundle(work_dir: Path, files: Files) -> Path:
    path = work_dir / "bundle.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


class Hosted:
    """One host process; `messages` grows while something waits for them."""

    def __init__(self, told: ScriptAssignment, environment: Mapping[str, str]) -> None:
        self.work_dir = Path(told.work_dir)
        self.messages: list[Message] = []
        self._decoder = Decoder()
        self._ours, theirs = socket.socketpair()
        self._log = self.work_dir / "log"
        memory = os.memfd_create("assignment")
        try:
            with open(memory, "wb", closefd=False) as file:
                file.write(told.model_dump_json().encode())
            os.lseek(memory, 0, os.SEEK_SET)
            with self._log.open("wb") as log:
                self.process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno()), str(memory)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=ROOT,
                    env=dict(environment),
                    pass_fds=[theirs.fileno(), memory],
                    start_new_session=True,
                )
        finally:
            os.close(memory)
            theirs.close()

    @property
    def log(self) -> str:
        return self._log.read_text(encoding="utf-8", errors="replace")

    @property
    def log_bytes(self) -> int:
        return self._log.stat().st_size

    def of(self, kind: type[M]) -> list[M]:
        return [message for message in self.messages if isinstance(message, kind)]

    @property
    def last(self) -> Message:
        return self.messages[-1]

    @property
    def done(self) -> Done:
        assert isinstance(self.last, Done), (self.last, self.log[-2000:])
        return self.last

    @property
    def failed(self) -> Failed:
        assert isinstance(self.last, Failed), (self.last, self.log[-2000:])
        return self.last

    @property
    def started(self) -> Started:
        return self.of(Started)[0]

    @property
    def points(self) -> list[Point]:
        return [point for report in self.of(Report) for point in report.points]

    @property
    def notices(self) -> list[str]:
        return [notice.code for notice in self.of(Notice)]

    @property
    def outputs(self) -> dict[str, Path]:
        return {artifact.name: self.work_dir / artifact.path for artifact in self.of(Artifact)}

    def stop(self, reason: str = "pause") -> None:
        with contextlib.suppress(OSError):
            self._ours.sendall(encode(Stop(reason=reason)))

    def hang_up(self) -> None:
        self._ours.close()

    def until(self, kind: type[M]) -> M:
        """Wait for the first message of a kind."""
        deadline = time.monotonic() + LIMIT_S
        while not self.of(kind):
            assert time.monotonic() < deadline, (self.messages[-2:], self.log[-2000:])
            assert self._take(), (self.messages, self.log[-2000:])
        return self.of(kind)[0]

    def until_logged(self, text: str) -> None:
        deadline = time.monotonic() + LIMIT_S
        while text not in self.log:
            assert time.monotonic() < deadline, (self.messages[-2:], self.log[-2000:])
            self._take(0.01)

    def finish(self) -> "Hosted":
        """Take in all that it says to its end; its status must fit to its last word."""
        deadline = time.monotonic() + LIMIT_S
        while self._take():
            assert time.monotonic() < deadline, (self.messages[-2:], self.log[-2000:])
        status = self.process.wait(LIMIT_S)
        assert (status == 0) == isinstance(self.last, Done), (status, self.last, self.log[-2000:])
        return self

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._ours.close()

    def _take(self, wait_s: float = 1.0) -> bool:
        """Take in what is there; False at the end of the stream."""
        if not select.select([self._ours], [], [], wait_s)[0]:
            return True
        try:
            data = self._ours.recv(1 << 20)
        except ConnectionResetError:
            return False
        self.messages += self._decoder.feed(data)
        return bool(data)


@contextmanager
def hosted(work_dir: Path, files: Files, *command: str, **changes: Any) -> Iterator[Hosted]:
    """A host that runs a command over these files of a bundle; `python train.py` where none is given."""
    work_dir.mkdir(parents=True, exist_ok=True)
    told = assignment(work_dir, command or ("python", "train.py"), bundle=str(bundle(work_dir, files)), **changes)
    host = Hosted(told, environment_of(told))
    try:
        yield host
    finally:
        host.close()


def environment_of(told: ScriptAssignment) -> dict[str, str]:
    """As a worker makes it: little, and the devices pinned."""
    visible = ",".join(device.id for device in told.devices if device.kind != "cpu")
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "CUDA_VISIBLE_DEVICES": visible, "PYTHONUTF8": "1"}


def run(work_dir: Path, files: Files, *command: str, **changes: Any) -> Hosted:
    """Run to the end."""
    with hosted(work_dir, files, *command, **changes) as host:
        return host.finish()


def script(work_dir: Path, text: str, **changes: Any) -> Hosted:
    """Run one script to the end."""
    return run(work_dir, {"train.py": text}, **changes)


def is_running(pid: int) -> bool:
    """Whether a process is there and not only waiting to be reaped."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] not in ("Z", "X")
    return False


def wait_gone(pid: int) -> None:
    deadline = time.monotonic() + LIMIT_S
    while is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} is still there"
        time.sleep(0.005)


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def open_descriptors() -> int:
    """How many descriptors this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
