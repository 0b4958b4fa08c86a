"""Killed at each named point of a checkpoint, and at random moments; minutes, so only `make full` runs it."""

import os
import random
import secrets
import signal
from pathlib import Path

import pytest

from tests.e2e.interruptions import (
    FRAMEWORKS,
    begin,
    interruptible,
    same_as_unbroken,
    same_numbers,
    thaw,
    went_on,
)
from tests.e2e.specs import Spec
from tests.e2e.stack import Stack, running_stack
from workers.fault_points import VARIABLE

# Where the trainer is killed, the how many-th time it comes by. Each attempt gets at least one checkpoint further, and
# the last one comes by too seldom to be killed: a checkpoint has four files, so `half_written` is passed four times.
POINTS = {
    "checkpoint.begin": 2,
    "checkpoint.half_written": 7,
    "checkpoint.before_manifest": 2,
    "checkpoint.after_manifest": 2,
    "checkpoint.announced": 2,
}
# In the worker, where a kill costs it and its trainers.
WORKER_POINTS = {"checkpoint.before_store": 2, "checkpoint.stored": 2, "checkpoint.recorded": 2}
SLICES = 8
pytestmark = pytest.mark.full


def few_checkpoints(framework: str, devices: int) -> Spec:
    """Three checkpoints on the way: after epochs 80 and 160, and at the end."""
    spec = interruptible(framework, device_count=devices, retry={"failures": 20, "losses": 20})
    spec["hyperparameters"] |= {"checkpoint_every_epochs": 80}
    return spec


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("point", [*POINTS, *WORKER_POINTS])
def test_killed_at_a_point_of_a_checkpoint(tmp_path: Path, framework: str, devices: int, point: str) -> None:
    fault = f"{point}:{(POINTS | WORKER_POINTS)[point]}"
    slots = {"TRAINSHED_CPU_SLOTS": str(devices)}
    with running_stack(tmp_path / "killed", {**slots, VARIABLE: fault}) as stack:
        job = went_on(stack, stack.submit(few_checkpoints(framework, devices)))
        assert len(job["attempts"]) > 1
        with running_stack(tmp_path / "whole", slots) as untouched:
            whole = untouched.wait(untouched.submit(few_checkpoints(framework, devices)), "succeeded")
            same_numbers(stack, job, untouched, whole)


@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_killed_at_three_random_moments(home: Path, framework: str, devices: int) -> None:
    seed = secrets.randbelow(2**32)
    print(f"seed {seed}")  # noqa: T201 - to be able to repeat what failed
    moments = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    with running_stack(home, {"TRAINSHED_CPU_SLOTS": str(devices)}) as stack:
        job_id, pid = begin(stack, interruptible(framework, device_count=devices, retry={"failures": 3}))
        for attempt in range(2, 5):
            for _ in range(moments.randrange(SLICES)):
                thaw(pid)
                stack.client.get("/livez")
                os.kill(pid, signal.SIGSTOP)
            os.kill(pid, signal.SIGKILL)
            pid = freeze_attempt(stack, job_id, attempt)
        thaw(pid)
        same_as_unbroken(stack, {}, went_on(stack, job_id))


def freeze_attempt(stack: Stack, job_id: str, number: int) -> int:
    """The trainer of that attempt, which stands still from its start on."""

    def started() -> int | None:
        last = stack.job(job_id)["attempts"][-1]
        return int(last["workers"][0]["pid"] or 0) or None if last["number"] == number else None

    pid = stack.until(started, "the next trainer")
    os.kill(pid, signal.SIGSTOP)
    return pid
