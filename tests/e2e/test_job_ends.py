"""Every way a job can go, over real Redis, worker and trainer, on SQLite and on PostgreSQL."""

import os
import signal
from typing import Any

import pytest

from tests.e2e.specs import long, quick
from tests.e2e.stack import Stack, is_gone

FRAMEWORKS = ["torch", "tensorflow"]


def trainer_pid(job: dict[str, Any]) -> int:
    return int(job["attempts"][-1]["workers"][0]["pid"])


def running(stack: Stack, spec: dict[str, Any]) -> tuple[str, int]:
    """Submit and wait until it trains; its id and its trainer's pid."""
    job_id = stack.submit(spec)
    stack.wait(job_id, "running")
    return job_id, stack.until(lambda: trainer_pid(stack.job(job_id)) or None, "the trainer's pid")


def all_devices_free(stack: Stack) -> bool | None:
    devices = stack.client.get("/v1/devices").json()["data"]
    return all(device["state"] == "free" for device in devices) or None


def group_is_gone(pgid: int) -> bool | None:
    try:
        os.killpg(pgid, 0)
    except ProcessLookupError:
        return True
    return None


class TestSucceeded:
    @pytest.mark.parametrize("framework", FRAMEWORKS)
    def test_it_trains_and_leaves_a_model_metrics_and_a_log(self, stack: Stack, framework: str) -> None:
        job_id = stack.submit(quick(framework))
        job = stack.wait(job_id)
        assert job["state"] == "succeeded", job
        assert job["progress"]["fraction"] == 1.0
        assert {"loss", "val_loss", "accuracy", "val_accuracy", "test_accuracy"} <= set(job["metrics"]["last"])
        (attempt,) = job["attempts"]
        assert (attempt["exit_code"], attempt["device_kind"], attempt["simulated"]) == (0, "cpu", False)
        names = {item["name"] for item in stack.client.get(f"/v1/jobs/{job_id}/artifacts").json()["data"]}
        assert {"model.json", "model.safetensors"} <= names
        series = {item["name"]: item for item in stack.client.get(f"/v1/jobs/{job_id}/metrics").json()["data"]}
        assert len(series["val_loss"]["value"]) == 3
        assert len(series["samples_per_s"]["value"]) == 3

    def test_the_journal_tells_it_in_order_without_gaps(self, stack: Stack) -> None:
        job_id = stack.submit(quick())
        stack.wait(job_id)
        events = stack.events(job_id)
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        states = [event["state"] for event in events if event["kind"] == "state"]
        assert states == ["queued", "starting", "running", "succeeded"]

    def test_both_frameworks_tell_the_same_curve(self, stack: Stack) -> None:
        curves = []
        for framework in FRAMEWORKS:
            job_id = stack.submit(quick(framework))
            assert stack.wait(job_id)["state"] == "succeeded"
            found = stack.client.get(f"/v1/jobs/{job_id}/metrics", params={"names": "loss"}).json()["data"]
            curves.append(found[0]["value"])
        # The bar of the design for float32 without batch norm.
        assert curves[0] == pytest.approx(curves[1], rel=1e-5)

    def test_an_upload_with_text_labels(self, stack: Stack) -> None:
        rows = "".join(f"{n % 7},{n % 3},{'big' if n % 7 > 3 else 'small'}\n" for n in range(140))
        upload = {"file": ("sizes.csv", f"a,b,size\n{rows}", "text/csv")}
        dataset = stack.client.post("/v1/datasets", files=upload)
        assert dataset.status_code == 201, dataset.text
        data = {"source": dataset.json()["id"], "target": "size", "split": {"validation": 0.2, "test": 0.2}}
        job = stack.wait(stack.submit(quick(data=data, hyperparameters={"epochs": 30, "learning_rate": 0.05})))
        assert job["state"] == "succeeded", job
        assert job["metrics"]["last"]["test_accuracy"] > 0.95, "the label is a threshold on one column"


class TestCancelled:
    def test_while_it_waits(self, stack: Stack) -> None:
        job_id = stack.submit(quick(not_before="2999-01-01T00:00:00Z"))
        answer = stack.client.post(f"/v1/jobs/{job_id}/cancel")
        assert (answer.status_code, answer.json()["state"]) == (200, "cancelled")

    @pytest.mark.parametrize("framework", FRAMEWORKS)
    def test_while_it_runs_no_process_stays_and_the_device_is_free(self, stack: Stack, framework: str) -> None:
        job_id, pid = running(stack, long(framework=framework))
        answer = stack.client.post(f"/v1/jobs/{job_id}/cancel")
        assert answer.status_code == 202
        assert stack.wait(job_id)["state"] == "cancelled"
        assert is_gone(pid)
        assert group_is_gone(pid)
        stack.until(lambda: all_devices_free(stack), "every device is free")

    def test_a_frozen_trainer_is_killed_after_the_grace(self, stack: Stack) -> None:
        job_id, pid = running(stack, long())
        os.kill(pid, signal.SIGSTOP)
        stack.client.post(f"/v1/jobs/{job_id}/cancel")
        assert stack.wait(job_id)["state"] == "cancelled"
        assert is_gone(pid)

    def test_what_has_ended_cannot_be_cancelled(self, stack: Stack) -> None:
        job_id = stack.submit(quick())
        stack.wait(job_id, "succeeded")
        answer = stack.client.post(f"/v1/jobs/{job_id}/cancel")
        assert (answer.status_code, answer.json()["code"]) == (409, "state_conflict")


class TestKilled:
    def test_a_killed_trainer_fails_its_job_and_says_which_signal(self, stack: Stack) -> None:
        job_id, pid = running(stack, long())
        os.kill(pid, signal.SIGKILL)
        job = stack.wait(job_id)
        assert (job["state"], job["cause"], job["failures"]) == ("failed", "trainer_killed", 1)
        assert job["attempts"][0]["signal"] == signal.SIGKILL
        stack.until(lambda: all_devices_free(stack), "every device is free")

    def test_with_a_budget_it_runs_again(self, stack: Stack) -> None:
        job_id, pid = running(stack, long(retry={"failures": 1, "losses": 3}))
        os.kill(pid, signal.SIGKILL)
        stack.until(lambda: stack.job(job_id)["attempt"] == 2 or None, "the second attempt")
        stack.wait(job_id, "running")
        os.kill(trainer_pid(stack.job(job_id)), signal.SIGKILL)
        job = stack.wait(job_id)
        assert (job["state"], job["attempt"]) == ("failed", 2), "the budget is spent"

    def test_a_killed_worker_costs_an_attempt_never_the_job(self, stack: Stack) -> None:
        spec = quick(hyperparameters={"epochs": 400, "batch_size": 4})
        job_id, pid = running(stack, spec)
        stack.restart("worker")
        job = stack.wait(job_id)
        assert job["state"] == "succeeded", job
        assert [attempt["cause"] for attempt in job["attempts"]] == ["worker_lost", None]
        assert (job["losses"], job["failures"]) == (1, 0)
        assert is_gone(pid)

    @pytest.mark.parametrize("name", ["api", "control", "worker", "redis"])
    def test_a_restart_of_any_process_loses_nothing_accepted(self, stack: Stack, name: str) -> None:
        jobs = [stack.submit(quick()) for _ in range(3)]
        stack.restart(name)
        assert [stack.wait(job_id)["state"] for job_id in jobs] == ["succeeded"] * 3


class TestRedisDown:
    def test_a_post_is_accepted_and_the_job_runs_all_the_same(self, stack: Stack) -> None:
        with stack.down("redis"):
            job_id = stack.submit(quick())
            job = stack.wait(job_id)
            assert job["state"] == "succeeded", job
            assert stack.client.get("/readyz").status_code == 200, "it is degraded, not down"

    def test_nor_does_a_redis_that_never_answers_hold_it_up(self, stack: Stack) -> None:
        with stack.frozen("redis"):
            assert stack.wait(stack.submit(quick()))["state"] == "succeeded"
