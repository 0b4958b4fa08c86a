"""Ranks that fail, each in its way, and what rank 0 makes of it; jobs for `torch_jobs`."""

import mmap
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import psutil
import torch

from tests.workers.backends.tensorflow_models import part, program
from workers.backends.base import Steps, load_backend
from workers.backends.initial import draw_weights
from workers.backends.torch import followers
from workers.backends.torch.followers import RankFailed
from workers.backends.torch.group import Group
from workers.backends.torch.ranks import Make, RankedSession
from workers.backends.torch.session import TorchSession
from workers.data.metrics import no_sums
from workers.processes import ProcessStat, read_stat


class Faulty(TorchSession):
    """The session of a rank that fails in one of its steps, in the way that `fault` is."""

    fault: Callable[[], None]
    failing = 1
    at_step = 3

    def _step(self, *arguments: Any) -> torch.Tensor:
        if self._group.rank == self.failing and arguments[-1] == self.at_step:
            self.fault()
        return super()._step(*arguments)


def kill_self() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def touch_missing_memory() -> NoReturn:
    """What the kernel does to a process that writes to a page of shared memory for which there is no room."""
    with tempfile.TemporaryFile() as file:
        file.truncate(mmap.PAGESIZE)
        page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        file.truncate(0)
        page[0] = 1
    raise AssertionError


def freeze_self() -> None:
    """Stand still, as a rank does that somebody has sent SIGSTOP; looked at often, so that the test is short."""
    os.kill(os.getpid(), signal.SIGSTOP)


def frozen() -> dict[str, Any]:
    followers.LOOK_S = 0.05  # type: ignore[misc]
    return failed(freeze_self, 3, 2)


def frozen_for_a_moment() -> bool:
    """Whether a rank that is frozen and soon goes on costs nothing: it is thawed before the last look."""

    def thawing(pid: int) -> ProcessStat | None:
        found = read_stat(pid)
        if found is not None and found.state == "T":
            seen.append(pid)
            if len(seen) == followers.FROZEN_LOOKS - 1:
                os.kill(pid, signal.SIGCONT)
        return found

    seen: list[int] = []
    followers.LOOK_S = 0.05  # type: ignore[misc]
    vars(followers)["read_stat"] = thawing
    session = faulty(freeze_self)
    session.run(steps(20), no_sums("classification"))
    session.close()
    return len(seen) == followers.FROZEN_LOOKS - 1


def raise_error() -> NoReturn:
    raise ValueError("there is something rotten")


def run_out_of_memory() -> NoReturn:
    raise MemoryError("no more")


def failed(fault: Callable[[], None], world: int = 2, failing: int = 1) -> dict[str, Any]:
    """Train with a rank that fails, and say how rank 0 took it and who is left."""
    before = time.monotonic()
    session = faulty(fault, world, failing)
    try:
        session.run(steps(20), no_sums("classification"))
    except Exception as error:  # noqa: BLE001 - what it is, is the result
        cause = load_backend("torch").cause_of(error) or getattr(error, "cause", None)
        found = {"error": type(error).__name__, "message": str(error), "behind": repr(error.__cause__), "cause": cause}
        session.close()
        return found | {"left": children(), "in_time": time.monotonic() - before < 15}
    return {"error": None}


def faulty(fault: Callable[[], None], world: int = 2, failing: int = 1) -> RankedSession:
    wanted = program(world=world)
    weights = draw_weights(wanted.layers, wanted.input_shape, 3)

    def make(group: Group, device: torch.device) -> TorchSession:
        session = Faulty(wanted, weights, {"train": part(35)}, device, group)
        session.fault = fault
        session.failing = failing
        return session

    return RankedSession(make, world, "cpu", 1)


def steps(count: int) -> Steps:
    return Steps(np.random.default_rng(1).integers(0, 35, (count, 16)), np.full(count, 0.01), 0)


def children() -> list[int]:
    return [child.pid for child in psutil.Process().children()]


def killed_between_runs() -> dict[str, Any]:
    session = RankedSession(_usual, 2, "cpu", 1)
    os.kill(children()[0], signal.SIGKILL)
    try:
        session.run(steps(3), no_sums("classification"))
    except RankFailed as error:
        return {"message": str(error), "left": children()}
    return {"message": None}


def failing_to_build() -> dict[str, Any]:
    def make(group: Group, device: torch.device) -> TorchSession:
        if group.rank == 1:
            raise ValueError("no such model")
        return _usual(group, device)

    return refused(make)


def missing_at_the_meeting() -> dict[str, Any]:
    """A rank that is there and does not come to the meeting."""
    ours = os.getpid()

    def meet(*_: object) -> None:
        if os.getpid() != ours:
            signal.pause()
        raise RuntimeError("timed out")

    return refused(_usual, meet)


def refused(make: Make, meet: Callable[..., None] | None = None) -> dict[str, Any]:
    folders = set(Path(tempfile.gettempdir()).glob("trainshed-ranks-*"))
    if meet is not None:
        RankedSession.__init__.__globals__["_join"] = meet
    try:
        RankedSession(make, 2, "cpu", 1)
    except Exception as error:  # noqa: BLE001 - what it is, is the result
        more = set(Path(tempfile.gettempdir()).glob("trainshed-ranks-*")) - folders
        return {"error": type(error).__name__, "message": str(error), "left": children(), "folders": len(more)}
    return {"error": None}


def _usual(group: Group, device: torch.device) -> TorchSession:
    wanted = program(world=2)
    weights = draw_weights(wanted.layers, wanted.input_shape, 3)
    return TorchSession(wanted, weights, {"train": part(35)}, device, group)


def stuck() -> None:
    """Rank 0 never comes out of a collective that a dead rank will not join."""
    followers.UNSTICK_S = 0.2  # type: ignore[misc]
    Faulty.at_step = 1
    session = faulty(kill_self)
    session._own.run = lambda *_: signal.pause()  # type: ignore[assignment]
    session.run(steps(5), no_sums("classification"))


def orphaned() -> None:
    """Rank 0 is killed; the answer is that the others are gone, since they hold the pipe that it waits for."""
    _session = RankedSession(_usual, 3, "cpu", 1)
    kill_self()


FAULTS: dict[str, Callable[[], Any]] = {
    "killed": lambda: failed(kill_self),
    "without shared memory": lambda: failed(touch_missing_memory),
    "second of three killed": lambda: failed(kill_self, 3, 2),
    "frozen": frozen,
    "frozen for a moment": frozen_for_a_moment,
    "raising": lambda: failed(raise_error),
    "out of memory": lambda: failed(run_out_of_memory),
    "rank 0 raising": lambda: failed(raise_error, 2, 0),
    "killed between runs": killed_between_runs,
    "failing to build": failing_to_build,
    "missing at the meeting": missing_at_the_meeting,
    "stuck": stuck,
    "orphaned": orphaned,
}
