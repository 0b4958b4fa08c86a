"""Trained models answer over HTTP as they did in the trainer, and every answer survives the loss of any process."""

import contextlib
import csv
import io
import signal
from typing import Any

import psutil
import pytest

from app.tables import BUILTIN
from tests.e2e.specs import quick
from tests.e2e.stack import Json, Stack

FRAMEWORKS = ["torch", "tensorflow"]


def trained(stack: Stack, **changes: Any) -> str:
    job_id = stack.submit(quick(**changes))
    job = stack.wait(job_id)
    assert job["state"] == "succeeded", job
    return job_id


@pytest.fixture(scope="session")
def iris(stack: Stack) -> str:
    return trained(stack)


def rows_of(source: str, count: int = 150) -> tuple[list[Json], list[str]]:
    """Raw rows of a built-in set, and their targets as the API writes labels."""
    columns = {name: values.tolist() for name, values in BUILTIN[source].load().columns.items()}
    targets = [str(value) for value in columns.pop("target")]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return rows[:count], targets[:count]


def predict(stack: Stack, job_id: str, rows: list[Json], **headers: str) -> Any:
    return stack.client.post(f"/v1/jobs/{job_id}/predict", json={"rows": rows}, headers=headers)


def accuracy(labels: list[Any], targets: list[str]) -> float:
    return sum(str(label) == target for label, target in zip(labels, targets, strict=True)) / len(targets)


def predictor_of(stack: Stack) -> psutil.Process:
    """The warm predictor of the worker."""
    children = psutil.Process(stack.pid("worker")).children()
    (found,) = [child for child in children if "workers.predictor" in child.cmdline()]
    return found


class TestPredict:
    @pytest.mark.parametrize("framework", FRAMEWORKS)
    def test_it_answers_as_the_trainer_did(self, stack: Stack, framework: str) -> None:
        split = {"method": "given", "column": "part"}
        rows, targets = rows_of("iris")
        parts = ["train" if place % 3 else "test" for place in range(len(rows))]
        lines = [[*row.values(), target, part] for row, target, part in zip(rows, targets, parts, strict=True)]
        text = io.StringIO()
        csv.writer(text).writerows([[*rows[0], "kind", "part"], *lines])
        upload = stack.client.post("/v1/datasets", files={"file": ("iris.csv", text.getvalue(), "text/csv")})
        assert upload.status_code == 201, upload.text
        data = {"source": upload.json()["id"], "target": "kind", "split": split}
        job_id = trained(stack, framework=framework, data=data, task="classification")
        job = stack.job(job_id)
        tested = [place for place, part in enumerate(parts) if part == "test"]
        answer = predict(stack, job_id, [rows[place] for place in tested])
        assert answer.status_code == 200, answer.text
        content = answer.json()
        assert content["model"] == {"job": job_id, "framework": framework}
        # The trainer measured the same rows with the framework's own forward pass.
        measured = job["metrics"]["last"]["test_accuracy"]
        assert accuracy(content["labels"], [targets[place] for place in tested]) == pytest.approx(measured, abs=1e-9)
        for label, found in zip(content["labels"], content["probabilities"], strict=True):
            assert sum(found.values()) == pytest.approx(1.0, abs=1e-5)
            assert max(found, key=lambda name: found[name]) == str(label)

    def test_a_regression_answers_in_the_unit_of_its_target(self, stack: Stack) -> None:
        job_id = trained(stack, model="linear", data={"source": "diabetes", "split": {"test": 0.2}})
        rows, targets = rows_of("diabetes", 50)
        values = predict(stack, job_id, rows).json()["values"]
        goals = [float(target) for target in targets]
        mean = sum(goals) / len(goals)
        # Any fit is nearer to the targets' mean, about 150, than a value on the standardised scale would be.
        assert abs(sum(values) / len(values) - mean) < mean / 2

    def test_csv_in_and_csv_out(self, stack: Stack, iris: str) -> None:
        rows, _ = rows_of("iris", 3)
        text = io.StringIO()
        csv.writer(text).writerows([list(rows[0]), *[list(row.values()) for row in rows]])
        headers = {"Content-Type": "text/csv", "Accept": "text/csv"}
        answer = stack.client.post(f"/v1/jobs/{iris}/predict", content=text.getvalue(), headers=headers)
        assert answer.status_code == 200, answer.text
        (head, *lines) = csv.reader(io.StringIO(answer.text))
        content = predict(stack, iris, rows).json()
        assert head == ["label", *(f"probability_{name}" for name in content["probabilities"][0])]
        assert [line[0] for line in lines] == [str(label) for label in content["labels"]]

    def test_rows_that_do_not_fit_are_named(self, stack: Stack, iris: str) -> None:
        rows, _ = rows_of("iris", 3)
        rows[1]["petal width (cm)"] = "wide"
        answer = predict(stack, iris, rows)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_rows")
        (problem,) = answer.json()["errors"]
        assert (problem["pointer"], problem["row"]) == ("/rows/1/petal width (cm)", 2)
        assert problem["column"] == "petal width (cm)"

    def test_a_full_fleet_never_keeps_it_waiting(self, stack: Stack, iris: str) -> None:
        rows, _ = rows_of("iris", 1)
        forever = quick(hyperparameters={"epochs": 100_000, "batch_size": 4})
        busy = [stack.submit(forever) for _ in stack.client.get("/v1/devices").json()["data"]]
        try:
            for job_id in busy:
                stack.wait(job_id, "running")
            assert predict(stack, iris, rows).status_code == 200
        finally:
            for job_id in busy:
                stack.client.post(f"/v1/jobs/{job_id}/cancel")
                stack.wait(job_id, "cancelled")


class TestFaults:
    def later(self, stack: Stack, address: str) -> Json:
        def there() -> Json | None:
            content: Json = stack.client.get(address).json()
            return content if content["state"] not in ("queued", "running") else None

        return stack.until(there, "the prediction is over")

    def test_without_redis_it_is_answered_all_the_same(self, stack: Stack, iris: str) -> None:
        rows, _ = rows_of("iris", 2)
        with stack.down("redis"):
            assert predict(stack, iris, rows).status_code == 200

    @pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
    def test_a_worker_that_goes_while_it_answers_loses_nothing(
        self, stack: Stack, iris: str, number: signal.Signals
    ) -> None:
        rows, _ = rows_of("iris", 2)
        predict(stack, iris, rows)
        warm = predictor_of(stack)
        warm.suspend()
        try:
            body = {"rows": rows, "timeout_s": 0.1}
            waiting = stack.client.post(f"/v1/jobs/{iris}/predict", json=body)
            assert waiting.status_code == 202, waiting.text
            address = waiting.headers["location"]
            stack.until(lambda: stack.client.get(address).json()["state"] == "running" or None, "it is taken")
            stack.await_successor("worker", stack.kill("worker", number))
        finally:
            with contextlib.suppress(psutil.NoSuchProcess):
                warm.kill()
        content = self.later(stack, address)
        assert (content["state"], len(content["labels"])) == ("succeeded", 2), content

    @pytest.mark.parametrize("name", ["api", "control"])
    def test_a_restart_of_another_process_loses_nothing_either(self, stack: Stack, iris: str, name: str) -> None:
        rows, _ = rows_of("iris", 2)
        with stack.frozen("worker"):
            waiting = stack.client.post(f"/v1/jobs/{iris}/predict", json={"rows": rows, "timeout_s": 0.1})
        stack.restart(name)
        assert self.later(stack, waiting.headers["location"])["state"] == "succeeded"

    def test_a_predictor_that_is_killed_is_replaced(self, stack: Stack, iris: str) -> None:
        rows, _ = rows_of("iris", 2)
        predict(stack, iris, rows)
        predictor_of(stack).kill()
        assert predict(stack, iris, rows).status_code == 200


class TestExports:
    def test_an_export_becomes_an_artifact_that_can_be_downloaded(self, stack: Stack, iris: str) -> None:
        answer = stack.client.post(f"/v1/jobs/{iris}/exports", json={"format": "onnx", "timeout_s": 60}, timeout=70)
        assert answer.status_code in {200, 201}, answer.text
        (made,) = answer.json()["artifacts"]
        content = stack.client.get(f"/v1/jobs/{iris}/artifacts/{made['name']}")
        assert (content.status_code, len(content.content)) == (200, made["size_bytes"])
        again = stack.client.post(f"/v1/jobs/{iris}/exports", json={"format": "onnx"})
        assert (again.status_code, again.json()["artifacts"]) == (200, [made])
