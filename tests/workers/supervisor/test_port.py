"""One suite for everything that starts trainers: the real launcher, and the one whose trainer is the test."""

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from app.clock import SystemClock
from tests.workers.fake_launcher import FakeLauncher, FakeRun
from tests.workers.launcher.attempt import FAR_NS, ROOT, assignment, boot_ns, simulated
from workers.launch import ColdLauncher, trainer_environment
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

LIMIT_S = 30.0
ENTRIES = "tests.workers.launcher.entry_points"


@dataclass
class Port:
    """A launcher, and how to bring its trainer to do a few things."""

    launcher: Launcher
    request: LaunchRequest
    exits_with: Callable[[int], Running]
    runs: Callable[[], Running]
    vanishes: Callable[[Running], None]


@pytest.fixture
def request_(tmp_path: Path) -> LaunchRequest:
    devices = [simulated("GPU-0")]
    return LaunchRequest(
        interpreter=Path(sys.executable),
        environment=trainer_environment(devices, 1, tmp_path / "work", os.environ) | {"PYTHONPATH": str(ROOT)},
        assignment=assignment(tmp_path / "work", devices),
        lock_dir=tmp_path / "locks",
        until_boot_ns=boot_ns() + FAR_NS,
    )


def real(request: LaunchRequest) -> Port:
    launcher = ColdLauncher()

    def exits_with(code: int) -> Running:
        changed = request.assignment.model_copy(update={"seed": code})
        return launcher.start(replace(request, assignment=changed, entry=f"{ENTRIES}:exit_with_seed"))

    def vanishes(run: Running) -> None:
        run._process.kill()  # type: ignore[attr-defined] # the launcher's own process

    return Port(
        launcher, request, exits_with, lambda: launcher.start(replace(request, entry=f"{ENTRIES}:run")), vanishes
    )


def played(request: LaunchRequest) -> Port:
    launcher = FakeLauncher(SystemClock())

    def exits_with(code: int) -> Running:
        run = launcher.start(request)
        assert isinstance(run, FakeRun)
        run.end(code=code)
        return run

    def vanishes(run: Running) -> None:
        assert isinstance(run, FakeRun)
        run.vanish()

    return Port(launcher, request, exits_with, lambda: launcher.start(request), vanishes)


@pytest.fixture(params=[real, played], ids=["cold", "fake"])
def port(request: pytest.FixtureRequest, request_: LaunchRequest) -> Iterator[Port]:
    with ExitStack() as stack:
        made: Port = request.param(request_)
        start = made.launcher.start

        def remember(request: LaunchRequest) -> Running:
            run = start(request)
            stack.callback(run.close)
            return run

        made.launcher.start = remember  # type: ignore[method-assign] # so that no run outlives the test
        yield made


def events_of(run: Running, *, last: bool = True) -> list[Event]:
    """All events to the last one, or to the first."""
    events: list[Event] = []
    poll = select.poll()
    poll.register(run.control, select.POLLIN)
    give_up = time.monotonic() + LIMIT_S
    while not events or (last and isinstance(events[-1], StartedEvent)):
        assert time.monotonic() < give_up, events
        poll.poll(1000)
        events += run.events()
    return events


def up(run: Running) -> Running:
    """A run whose launcher has its locks."""
    assert isinstance(events_of(run, last=False)[0], StartedEvent)
    return run


class TestPort:
    def test_started_comes_first_and_the_exit_code_last(self, port: Port) -> None:
        first, last = events_of(port.exits_with(3))
        assert isinstance(first, StartedEvent)
        assert isinstance(last, Ended)
        assert (last.code, last.signal, last.survivors, last.deadline) == (3, None, False, False)

    def test_a_signal_is_told_as_one(self, port: Port) -> None:
        run = up(port.runs())
        run.stop(signal.SIGKILL)
        last = events_of(run)[-1]
        assert isinstance(last, Ended)
        assert (last.code, last.signal) == (None, signal.SIGKILL)

    def test_a_held_lock_is_told_and_nothing_is_started(self, port: Port) -> None:
        up(port.runs())
        (only,) = events_of(port.runs())
        assert isinstance(only, Busy)
        assert only.lock.endswith("job-job_1.lock")

    def test_locks_are_free_after_the_end(self, port: Port) -> None:
        events_of(port.exits_with(0))
        assert isinstance(events_of(port.exits_with(0))[-1], Ended)

    def test_a_passed_deadline_starts_nothing(self, port: Port) -> None:
        (only,) = events_of(port.launcher.start(replace(port.request, until_boot_ns=1)))
        assert isinstance(only, Ended)
        assert only.deadline

    def test_a_killed_launcher_is_told_as_gone(self, port: Port) -> None:
        run = up(port.runs())
        port.vanishes(run)
        assert isinstance(events_of(run)[-1], LauncherGone)

    def test_close_frees_the_locks_of_a_run(self, port: Port) -> None:
        up(port.runs()).close()
        assert isinstance(events_of(port.exits_with(0))[-1], Ended)

    def test_close_twice_and_orders_after_the_end_are_harmless(self, port: Port) -> None:
        run = port.exits_with(0)
        events_of(run)
        run.stop(signal.SIGTERM)
        run.extend(boot_ns() + FAR_NS)
        run.close()
        run.close()

    def test_an_interpreter_that_is_not_there_is_an_error(self, request_: LaunchRequest) -> None:
        played_launcher = FakeLauncher(SystemClock())
        played_launcher.refuses = Path("/nowhere/python")
        for launcher in (ColdLauncher(), played_launcher):
            with pytest.raises(LaunchFailed, match="/nowhere/python"):
                launcher.start(replace(request_, interpreter=Path("/nowhere/python")))
