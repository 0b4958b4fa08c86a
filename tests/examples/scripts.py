"""The example scripts as tests run them: by themselves with plain Python, and through `trainshed run`."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.e2e.stack import Stack, is_gone
from workers.processes import all_pids

FOLDER: Final = Path(__file__).resolve().parents[2] / "examples" / "scripts"
_LIMIT_S: Final = 240.0
Json = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """One folder: its command long enough to be interrupted, and options of `trainshed run` that it needs.

    `result` are the metrics that tell whether two runs are equal; `outputs` what it leaves. A metric of step `saved_by`
    is printed when a checkpoint has been written.
    """

    name: str
    command: tuple[str, ...]
    outputs: tuple[str, ...]
    result: tuple[str, ...] = ("loss", "val_loss", "val_accuracy")
    options: tuple[str, ...] = ()
    ranks: int = 1
    saved_by: int = 1

    @property
    def needs_packages(self) -> bool:
        return "--requirements" in self.options


def last_metrics(lines: Iterator[str] | list[str]) -> Json:
    """The newest value of every number that JSON lines tell."""
    found: Json = {}
    for line in lines:
        if line.startswith("{"):
            found |= {name: value for name, value in json.loads(line).items() if isinstance(value, int | float)}
    return found


def ours(**more: str) -> dict[str, str]:
    """The environment without what is meant for a Trainshed; one thread, as a job on half of two slots has."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRAINSHED_")}
    return {**kept, "OMP_NUM_THREADS": "1", "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1", **more}


def run_alone(example: Example, folder: Path, *more: str, **variables: str) -> list[str]:
    """What the script prints when somebody starts it in an empty folder, by torchrun if it has several ranks."""
    folder.mkdir(exist_ok=True)
    script = FOLDER / example.name / "train.py"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(example.ranks)]
    command = [sys.executable, *(launcher if example.ranks > 1 else []), str(script), *example.command[2:], *more]
    done = subprocess.run(
        command, cwd=folder, env=ours(**variables), capture_output=True, text=True, timeout=_LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout.splitlines()


@dataclass
class Started:
    """A `trainshed run` that goes on beside the test; `documents` grows with each line that it prints."""

    process: subprocess.Popen[str]
    folder: Path
    documents: list[Json] = field(default_factory=list)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.documents.append(json.loads(line))

    def job_id(self, stack: Stack) -> str:
        """Once it is known."""
        first = stack.until(lambda: self.documents[0] if self.documents else None, "a job", detail=self.said)
        return str(first["id"])

    def of_kind(self, kind: str) -> list[Json]:
        return [document for document in self.documents if document.get("kind") == kind and "seq" in document]

    def step(self) -> int:
        """How far the metrics have come."""
        return max((int(entry["progress"]["step"]) for entry in self.of_kind("metric")), default=0)

    def said(self) -> str:
        return (self.folder.parent / "stderr").read_text()[-3000:]

    def code(self) -> int:
        """The exit code, when it has ended."""
        return self.process.wait(_LIMIT_S)


@contextmanager
def _heeding_ctrl_c() -> Iterator[None]:
    """Start programs as a terminal does: who inherits an ignored SIGINT, from a job in the background say, keeps it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def running(stack: Stack, example: Example, place: Path, *options: str) -> Iterator[Started]:
    """`trainshed run --json` in a copy of the example's folder, as a person would start it."""
    folder = place / "code"
    shutil.copytree(FOLDER / example.name, folder)
    environ = ours(TRAINSHED_URL=stack.url, TRAINSHED_KEY=stack.key, TRAINSHED_HOME=str(place / "home"))
    words = ["run", "--json", *example.options, *options, "--", *example.command]
    with (place / "stderr").open("w") as stderr, _heeding_ctrl_c():
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "app.cli", *words],
            cwd=folder,
            env=environ,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )
    started = Started(process, folder)
    reader = threading.Thread(target=started.read, name="run-reader")
    reader.start()
    try:
        yield started
    finally:
        process.kill()
        process.wait()
        reader.join()
        assert process.stdout is not None
        process.stdout.close()


def script_pids(job_id: str, attempt: int = 1) -> list[int]:
    """The processes of the user's command, of one attempt."""
    marks = (f"TRAINSHED_JOB_ID={job_id}".encode(), f"TRAINSHED_ATTEMPT={attempt}".encode())
    found = []
    for pid in all_pids():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (FileNotFoundError, ProcessLookupError, PermissionError):
            continue
        if all(mark in environment for mark in marks) and b"train.py" in command and not is_gone(pid):
            found.append(pid)
    return found


def hold_still(job_id: str) -> list[int]:
    """Freeze the command, so that it cannot end before the test has done to it what it wants to."""
    pids = script_pids(job_id)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    return pids


def newest(job: Mapping[str, Any], names: Iterable[str]) -> Json:
    """The last value of each of these metrics."""
    return {name: job["metrics"]["last"][name] for name in names}
