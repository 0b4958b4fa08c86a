"""Start attempts, watch processes, and leave nothing behind."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from tests.workers.launcher.attempt import FAR_NS, ROOT, Attempt, Watched, assignment, boot_ns, simulated
from workers.launch import ColdLauncher, LaunchRequest, trainer_environment

Start = Callable[..., Attempt]
RequestFor = Callable[..., LaunchRequest]


@pytest.fixture
def lock_dir(tmp_path: Path) -> Path:
    return tmp_path / "locks"


@pytest.fixture
def request_for(tmp_path: Path, lock_dir: Path) -> RequestFor:
    """A request to run one of the entry points on one simulated device, for an hour at most."""

    def build(
        entry: str, *, device: str = "GPU-0", job: str = "job_1", seed: int = 0, framework: str = "torch"
    ) -> LaunchRequest:
        devices = [simulated(device)]
        work_dir = tmp_path / job
        environment = trainer_environment(devices, 1, work_dir, os.environ)
        return LaunchRequest(
            interpreter=Path(sys.executable),
            environment=environment | {"PYTHONPATH": str(ROOT)},
            assignment=assignment(work_dir, devices, framework=framework, job=job, seed=seed),
            lock_dir=lock_dir,
            until_boot_ns=boot_ns() + FAR_NS,
            entry=f"tests.workers.launcher.entry_points:{entry}",
        )

    return build


@pytest.fixture
def start(request_for: RequestFor) -> Iterator[Start]:
    """Start an entry point; `changes` are fields of the request, the other options those of `request_for`."""
    with ExitStack() as stack:

        def begin(
            entry: str,
            *,
            launcher: ColdLauncher | None = None,
            changes: dict[str, object] | None = None,
            **options: object,
        ) -> Attempt:
            request = replace(request_for(entry, **options), **(changes or {}))  # type: ignore[arg-type]  # any field
            run = (launcher or ColdLauncher()).start(request)
            stack.callback(run.close)
            return Attempt(run, request)

        yield begin


@pytest.fixture
def watch() -> Iterator[Callable[[int], Watched]]:
    """Watch a living process; it is given up with the test."""
    with ExitStack() as stack:

        def begin(pid: int) -> Watched:
            watched = Watched(pid)
            stack.callback(watched.close)
            return watched

        yield begin
