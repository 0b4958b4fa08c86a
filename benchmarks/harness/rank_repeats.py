"""Runs the same small job on two CPU devices again and again, each time in a process forked from this one.

Started as `python -m benchmarks.harness.rank_repeats FRAMEWORK REPEATS`. A launcher forks trainers from a process that
has imported the framework just so, and a trainer of several devices leaves by `os._exit` just so. One JSON line per
repeat comes out: how it ended, how long that took, and whether all of its processes had gone by then.
"""

import json
import os
import select
import signal
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, Final

from app.spec import parse_job, resolve
from app.tables import builtin_schema
from workers.backends.base import Backend, load_backend
from workers.context import NullContext
from workers.loop import train
from workers.protocol import Assignment, DataSource, Device

LIMIT_S: Final = 60.0
"""After so long a job that takes less than a second, or a few on a busy machine, is taken for hanging."""

DEVICES: Final = [Device(id=f"cpu-{place}@host", kind="cpu", name="CPU") for place in range(2)]

SPEC: Final[dict[str, Any]] = {
    "model": {"type": "mlp", "hidden": [16], "batch_norm": True, "dropout": 0.2},
    "data": "iris",
    "device_count": 2,
    "hyperparameters": {"epochs": 3, "batch_size": 16},
}


def main(framework: str, repeats: int) -> None:
    warnings.simplefilter("ignore", DeprecationWarning)  # of a fork beside threads, which is what is measured here
    backend = load_backend(framework)
    spec = resolve(parse_job({"framework": framework, **SPEC}), builtin_schema("iris"), "cpu")
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as work_dir:
            assignment = Assignment(
                job_id="job_1",
                attempt=1,
                spec=spec,
                table=DataSource(builtin="iris"),
                devices=DEVICES,
                threads=2,
                work_dir=work_dir,
                seed=0,
            )
            print(json.dumps(_repeat(assignment, backend)), flush=True)


def _repeat(assignment: Assignment, backend: Backend) -> dict[str, Any]:
    began = time.perf_counter()
    pid = os.fork()
    if pid == 0:
        _be_a_trainer(assignment, backend)
    pidfd = os.pidfd_open(pid)
    ended = bool(select.select([pidfd], [], [], LIMIT_S)[0])
    took = time.perf_counter() - began
    os.close(pidfd)
    left = ended and _group_lives(pid)
    if not ended or left:
        os.killpg(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    how = "hung" if not ended else "left processes" if left else f"status {os.waitstatus_to_exitcode(status)}"
    return {"how": how, "seconds": took}


def _be_a_trainer(assignment: Assignment, backend: Backend) -> None:
    status = 1
    try:
        os.setsid()
        backend.prepare(assignment.devices, assignment.threads)
        train(assignment, backend, NullContext(), say=lambda _line: None)
        status = 0 if (Path(assignment.work_dir) / "model").is_dir() else 2
    finally:
        if status:
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def _group_lives(leader: int) -> bool:
    """Whether anybody else is left in the group of a leader that has ended and was not reaped yet."""
    return any(_group_of(int(path.name)) == leader for path in Path("/proc").iterdir() if _is_other(path.name, leader))


def _is_other(name: str, leader: int) -> bool:
    return name.isdigit() and int(name) != leader


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
