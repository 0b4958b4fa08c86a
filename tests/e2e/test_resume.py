"""A job that is interrupted goes on where it was: over real Redis, worker and trainer, in both frameworks."""

import os
import signal
from collections.abc import Iterator

import pytest

from app.checkpoints.headers import WEIGHTS_FILE
from tests.e2e.interruptions import (
    FRAMEWORKS,
    Whole,
    act,
    begin,
    checkpoints,
    curve,
    interruptible,
    is_killed_and_goes_on,
    same_as_unbroken,
    thaw,
    went_on,
)
from tests.e2e.specs import quick
from tests.e2e.stack import Stack, is_gone, running_stack

ONE_DATABASE = pytest.mark.parametrize("stack", ["sqlite"], indirect=True)


@pytest.fixture(scope="module")
def unbroken() -> Whole:
    """Jobs that nothing interrupted, by service, framework and devices, to compare with; made when first asked for."""
    return {}


@pytest.fixture(scope="module")
def two_slots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A service on a host with two CPU devices."""
    home = tmp_path_factory.mktemp("two") / "home"
    with running_stack(home, {"TRAINSHED_CPU_SLOTS": "2"}) as stack:
        yield stack


class TestKilledTrainer:
    @ONE_DATABASE
    @pytest.mark.parametrize("framework", FRAMEWORKS)
    def test_the_job_goes_on_as_if_nothing_had_been(self, stack: Stack, unbroken: Whole, framework: str) -> None:
        is_killed_and_goes_on(stack, unbroken, interruptible(framework, retry={"failures": 1}))

    @pytest.mark.parametrize("framework", FRAMEWORKS)
    def test_so_does_one_on_two_devices(self, two_slots: Stack, unbroken: Whole, framework: str) -> None:
        spec = interruptible(framework, device_count=2, retry={"failures": 1})
        is_killed_and_goes_on(two_slots, unbroken, spec)

    def test_without_a_budget_a_retry_goes_on_from_there(self, stack: Stack) -> None:
        job_id, pid = begin(stack, interruptible())
        os.kill(pid, signal.SIGKILL)
        failed = stack.wait(job_id, "failed")
        left = checkpoints(stack, job_id)[0]["step"]
        child = act(stack, job_id, "retry", 201)
        assert child["parent"] == {"job": job_id, "how": "retry", "checkpoint": left}
        done = stack.wait(child["id"], "succeeded")
        assert done["attempts"][0]["resumed_from_step"] == left
        assert min(curve(stack, child["id"], "loss")) > 1, "the first epochs are its parent's"
        assert act(stack, job_id, "pause", 409)["legal"] == ["retry", "clone"]
        assert failed["cause"] == "trainer_killed"


def online(stack: Stack) -> bool:
    return any(worker["online"] for worker in stack.client.get("/v1/workers").json()["data"])


class TestKilledWorker:
    def test_the_next_start_goes_on_from_the_checkpoint(self, stack: Stack) -> None:
        job_id, pid = begin(stack, interruptible())
        stack.restart("worker")
        job = went_on(stack, job_id)
        assert is_gone(pid)
        assert [attempt["cause"] for attempt in job["attempts"]] == ["worker_lost", None]
        assert (job["losses"], job["failures"]) == (1, 0)

    @ONE_DATABASE
    def test_a_worker_that_is_stopped_in_order_saves_first_and_costs_nothing(self, stack: Stack) -> None:
        job_id, pid = begin(stack, interruptible())
        old = stack.kill("worker", signal.SIGTERM)
        # It goes offline before it tells its trainers: thawed sooner, a trainer could be through before it is told.
        stack.until(lambda: not online(stack) or None, "the worker is leaving")
        thaw(pid)
        stack.await_successor("worker", old)
        job = went_on(stack, job_id)
        assert [attempt["cause"] for attempt in job["attempts"]] == ["drained", None]
        assert (job["losses"], job["failures"]) == (0, 0)


class TestPause:
    def test_it_saves_leaves_its_devices_and_goes_on_when_asked(self, stack: Stack, unbroken: Whole) -> None:
        job_id, pid = begin(stack, interruptible())
        act(stack, job_id, "pause", 202)
        thaw(pid)
        paused = stack.wait(job_id, "paused")
        assert is_gone(pid)
        assert paused["stop_requested"] is None
        assert all(device["job_id"] != job_id for device in stack.client.get("/v1/devices").json()["data"])
        newest = checkpoints(stack, job_id)[0]
        # At the very step of a periodic one there is nothing more to save.
        assert newest["last"]
        assert newest["reason"] in {"stop", "periodic"}
        act(stack, job_id, "resume", 202)
        job = went_on(stack, job_id)
        assert job["attempts"][-1]["resumed_from_step"] == newest["step"]
        assert (job["losses"], job["failures"]) == (0, 0)
        same_as_unbroken(stack, unbroken, job)
        states = [event["state"] for event in stack.events(job_id) if event["kind"] == "state"]
        assert states == ["queued", "starting", "running", "paused", "queued", "starting", "running", "succeeded"]


@ONE_DATABASE
class TestNewJobs:
    def test_a_clone_trains_the_changed_spec_from_the_beginning(self, stack: Stack) -> None:
        first = stack.wait(stack.submit(quick(exports=[])), "succeeded")
        child = act(stack, first["id"], "clone", 201, {"spec": {"hyperparameters": {"epochs": 5}, "name": "longer"}})
        job = stack.wait(child["id"], "succeeded")
        assert (job["name"], job["parent"]["job"], job["parent"]["how"]) == ("longer", first["id"], "clone")
        assert sorted(curve(stack, child["id"], "loss")) == [1, 2, 3, 4, 5]
        before = curve(stack, first["id"], "loss")
        # Same seed, constant rate: the epochs that both have are the same numbers.
        assert {epoch: curve(stack, child["id"], "loss")[epoch] for epoch in before} == before
        newest = checkpoints(stack, child["id"])[0]
        assert newest["final"]
        archive = stack.client.get(f"/v1/jobs/{child['id']}/checkpoints/{newest['step']}/content")
        assert (archive.status_code, archive.headers["content-type"]) == (200, "application/zip")
        assert WEIGHTS_FILE.encode() in archive.content

    def test_initialize_from_starts_where_the_other_job_ended_in_either_framework(self, stack: Stack) -> None:
        first = stack.submit(quick("torch", exports=[], hyperparameters={"epochs": 30, "learning_rate": 0.01}))
        stack.wait(first, "succeeded")
        source = {"job": first, "checkpoint": "last"}
        slow = {"epochs": 1, "learning_rate": 1e-9}
        spec = quick("tensorflow", exports=[], initialize_from=source, hyperparameters=slow)
        second = stack.submit(spec)
        stack.wait(second, "succeeded")
        # With a rate of nothing its loss is that of the weights it was given.
        assert curve(stack, second, "val_loss")[1] == pytest.approx(curve(stack, first, "val_loss")[30], rel=1e-4)
        codes = [event["code"] for event in stack.events(second) if event["kind"] == "notice"]
        assert "initialized" in codes
