"""Jobs that are interrupted, and how they are to come out: as if nothing had been."""

import os
import signal
from collections.abc import Mapping
from typing import Any

import pytest

from tests.e2e.specs import Spec, quick
from tests.e2e.stack import Json, Stack

FRAMEWORKS = ["torch", "tensorflow"]
EPOCHS = 200
Whole = dict[tuple[str, str, int], Json]
"""Jobs that nothing interrupted, by service, framework and devices."""


def interruptible(framework: str = "torch", **changes: Any) -> Spec:
    """Seconds of small steps, with a checkpoint every so many of them; the files besides are not what is tested."""
    hyperparameters = {
        "epochs": EPOCHS,
        "batch_size": 2,
        "learning_rate": 0.01,
        "schedule": {"name": "cosine"},
        "seed": 3,
        "checkpoint_every_epochs": 10,
    }
    return quick(framework, **{"hyperparameters": hyperparameters, "exports": [], **changes})


def checkpoints(stack: Stack, job_id: str) -> list[Json]:
    """The newest first."""
    data: list[Json] = stack.client.get(f"/v1/jobs/{job_id}/checkpoints").json()["data"]
    return data


def begin(stack: Stack, spec: Spec) -> tuple[str, int]:
    """A job that has left a checkpoint and is far from its end, and its trainer, which stands still.

    The trainer runs only while it is looked at, so how fast the machine is does not matter.
    """
    job_id = stack.submit(spec)
    stack.wait(job_id, "running")
    pid = stack.until(lambda: stack.job(job_id)["attempts"][-1]["workers"][0]["pid"], "the trainer's pid")
    os.kill(pid, signal.SIGSTOP)

    def has_left_one() -> bool | None:
        os.kill(pid, signal.SIGCONT)
        stack.client.get("/livez")
        os.kill(pid, signal.SIGSTOP)
        return bool(checkpoints(stack, job_id)) or None

    stack.until(has_left_one, "a checkpoint")
    return job_id, int(pid)


def thaw(pid: int) -> None:
    os.kill(pid, signal.SIGCONT)


def act(stack: Stack, job_id: str, what: str, status: int, body: Mapping[str, Any] | None = None) -> Json:
    answer = stack.client.post(f"/v1/jobs/{job_id}/{what}", json=body)
    assert answer.status_code == status, answer.text
    content: Json = answer.json()
    return content


def curve(stack: Stack, job_id: str, name: str) -> dict[int, float]:
    """A series by epoch."""
    (found,) = stack.client.get(f"/v1/jobs/{job_id}/metrics", params={"names": name}).json()["data"]
    assert len(set(found["epoch"])) == len(found["epoch"]), "each epoch is there once"
    return dict(zip(found["epoch"], found["value"], strict=True))


def went_on(stack: Stack, job_id: str) -> Json:
    """The job, which has succeeded with every epoch told once, by an attempt that went on from a checkpoint."""
    job = stack.wait(job_id)
    assert job["state"] == "succeeded", job
    assert job["attempts"][-1]["resumed_from_step"] > 0
    assert sorted(curve(stack, job_id, "loss")) == list(range(1, EPOCHS + 1))
    return job


def same_as_unbroken(stack: Stack, known: Whole, job: Json) -> None:
    """C36 of the collected cases: the same numbers, bit by bit, as if there had been no interruption."""
    key = (stack.url, job["framework"], job["device_count"])
    if key not in known:
        spec = interruptible(job["framework"], device_count=job["device_count"])
        known[key] = stack.wait(stack.submit(spec), "succeeded")
    same_numbers(stack, job, stack, known[key])


def same_numbers(stack: Stack, job: Json, other: Stack, whole: Json) -> None:
    """Two jobs, each of its service, have the same metrics, and the same learning rate in each epoch."""
    # What depends on the clock: how fast it went, and over which steps of an epoch the last window was taken.
    clocked = {"samples_per_s", "step_loss"}
    shown, expected = job["metrics"]["last"], whole["metrics"]["last"]
    assert {n: shown[n] for n in shown.keys() - clocked} == {n: expected[n] for n in expected.keys() - clocked}
    rates = curve(stack, job["id"], "learning_rate")
    assert rates == pytest.approx(curve(other, whole["id"], "learning_rate"), rel=1e-12)


def is_killed_and_goes_on(stack: Stack, unbroken: Whole, spec: Spec) -> None:
    """Kill the trainer behind its first checkpoint; the job's second attempt makes it what it would have been."""
    job_id, pid = begin(stack, spec)
    os.kill(pid, signal.SIGKILL)
    job = went_on(stack, job_id)
    assert [attempt["cause"] for attempt in job["attempts"]] == ["trainer_killed", None]
    assert job["failures"] == 1
    same_as_unbroken(stack, unbroken, job)
