"""What the real processes tell of themselves: logs as JSON with the ids of what they speak of, and metrics of each."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.specs import quick
from tests.e2e.stack import Stack, running_stack
from tests.ports import free_ports

Samples = Callable[[str], dict[str, float]]
# Written by `trainshed up` at each start of a child, and by the API for whoever started it.
NO_LOG = ("--- ", "listening on ")


@contextmanager
def watched(home: Path) -> Iterator[tuple[Stack, Samples]]:
    """A service that logs JSON, and what each of its processes shows: sums by the name of a sample."""
    first = free_ports(3)
    ports = {"api": first, "control": first + 1, "worker": first + 2}

    def samples(process: str) -> dict[str, float]:
        text = httpx.get(f"http://127.0.0.1:{ports[process]}/metrics", trust_env=False).text
        found: dict[str, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                found[sample.name] = found.get(sample.name, 0.0) + sample.value
        return found

    with running_stack(home, {"TRAINSHED_LOG_FORMAT": "json", "TRAINSHED_METRICS_PORT": str(first)}) as stack:
        yield stack, samples


def lines(stack: Stack, process: str) -> list[dict[str, Any]]:
    """Each line of a process's log; one that is no JSON fails here."""
    text = stack.log(process)
    return [json.loads(line) for line in text.splitlines() if not line.startswith(NO_LOG)]


class TestOneJob:
    def test_can_be_followed_through_all_logs_and_is_counted_where_it_happens(self, home: Path) -> None:
        with watched(home) as (stack, samples):
            before = {name: samples(name) for name in ("api", "control", "worker")}
            job_id = stack.submit(quick(), **{"X-Request-Id": "follow-me"})
            assert stack.wait(job_id)["state"] == "succeeded"
            # The end is committed before the process counts it.
            stack.until(lambda: samples("worker")["trainshed_jobs_finished_total"] or None, "the end is counted")
            after = {name: samples(name) for name in before}
            worker_id = stack.client.get("/v1/workers").json()["data"][0]["id"]
            said = {name: lines(stack, name) for name in before}

        def grown(process: str, name: str) -> float:
            return after[process][name] - before[process][name]

        assert grown("api", "trainshed_jobs_submitted_total") == 1
        assert grown("control", "trainshed_queue_wait_seconds_count") == 1
        assert grown("worker", "trainshed_jobs_finished_total") == 1
        assert grown("worker", "trainshed_job_run_duration_seconds_count") == 1
        assert after["control"]["trainshed_reconciler_last_success_timestamp_seconds"] > 0
        assert after["worker"]["trainshed_worker_attempts"] == 0
        assert after["api"]["trainshed_worker_state"] == 1

        (submitted,) = [line for line in said["api"] if line.get("request_id") == "follow-me"]
        assert (submitted["event"], submitted["job_id"]) == ("job_submitted", job_id)
        (placed,) = [line for line in said["control"] if line["event"] == "placed"]
        assert (placed["job_id"], placed["attempt"], placed["worker_id"]) == (job_id, 1, worker_id)
        told = [line for line in said["worker"] if line["event"] in ("claimed", "attempt_over")]
        assert {(line["job_id"], line["attempt"], line["worker_id"]) for line in told} == {(job_id, 1, worker_id)}
        assert all({"timestamp", "level", "event"} <= set(line) for found in said.values() for line in found)
        assert stack.key not in json.dumps(said)
