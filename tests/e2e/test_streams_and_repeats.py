"""Clients that reconnect and repeat while processes come and go (C56, C60, C62)."""

import json
import random
import threading
import uuid
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest

from tests.e2e.specs import long, quick
from tests.e2e.stack import Stack, running_stack
from tests.servers import PostgresServer

Events = list[dict[str, Any]]


def read_some(stack: Stack, job_id: str, after: int, count: int) -> Events:
    """Up to `count` events from the stream, then drop the connection; [] when the stream has nothing more."""
    headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
    found: Events = []
    with stack.client.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers) as answer:
        if answer.status_code == 204:
            return []
        for line in answer.iter_lines():
            if line.startswith("data:"):
                found.append(json.loads(line.removeprefix("data:")))
            if len(found) == count:
                break
    return found


class TestStream:
    def test_dropping_at_random_and_restarting_the_api_gives_each_event_once(self, stack: Stack) -> None:
        job_id = stack.submit(quick(hyperparameters={"epochs": 200, "batch_size": 4}))
        draw = random.Random(20260131)  # noqa: S311 - any cut will do, the same in every run
        found: Events = read_some(stack, job_id, 0, 2)
        stack.restart("api")
        while more := read_some(stack, job_id, found[-1]["seq"], draw.randint(1, 7)):
            found += more
        assert [event["seq"] for event in found] == list(range(1, len(found) + 1))
        assert (found[-1]["kind"], found[-1]["state"]) == ("state", "succeeded")
        assert found == stack.events(job_id)


class TestRepeats:
    def test_the_same_key_gives_the_same_job_also_after_a_restart(self, stack: Stack) -> None:
        key = {"Idempotency-Key": f"repeat-{uuid.uuid4()}"}
        spec = quick()
        first = stack.client.post("/v1/jobs", json=spec, headers=key)
        second = stack.client.post("/v1/jobs", json=spec, headers=key)
        stack.restart("api")
        third = stack.client.post("/v1/jobs", json=spec, headers=key)
        answers = [first, second, third]
        assert [answer.status_code for answer in answers] == [201, 201, 201]
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert [answer.headers.get("Idempotency-Replayed") for answer in answers] == [None, "true", "true"]
        job = stack.wait(first.json()["id"])
        assert (job["state"], job["attempt"]) == ("succeeded", 1)


@pytest.mark.slow
class TestNoIdleTransactions:
    def test_long_jobs_and_streams_hold_nothing_in_the_database(self, home: Path, postgres: PostgresServer) -> None:
        postgres.execute("CREATE DATABASE idle_check")
        url = postgres.url("idle_check")
        settings = {"TRAINSHED_DATABASE_URL": url, "TRAINSHED_CPU_SLOTS": "4"}
        with running_stack(home, settings) as stack:
            jobs = [stack.submit(long()) for _ in range(4)]
            for job_id in jobs:
                stack.wait(job_id, "running")
            clients = [httpx.Client(base_url=stack.url, headers=dict(stack.client.headers)) for _ in range(10)]
            threads = [threading.Thread(target=follow, args=(client, jobs[n % 4])) for n, client in enumerate(clients)]
            for thread in threads:
                thread.start()
            with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as watcher:
                idle = [longest_idle_s(watcher) for _ in range(100)]
                # Fails, rather than waits, when some transaction holds the table.
                watcher.execute("SET lock_timeout = '5s'")
                watcher.execute("ALTER TABLE jobs ADD COLUMN later integer")
            for job_id in jobs:
                stack.client.post(f"/v1/jobs/{job_id}/cancel")
            assert {stack.wait(job_id)["state"] for job_id in jobs} == {"cancelled"}
            for thread in threads:
                thread.join(60)
            for client in clients:
                client.close()
        postgres.execute("DROP DATABASE idle_check WITH (FORCE)")
        assert max(idle) < 2.0


def follow(client: httpx.Client, job_id: str) -> None:
    """Read a job's stream to its end, as a browser would."""
    headers = {"Accept": "text/event-stream"}
    with client.stream("GET", f"/v1/jobs/{job_id}/events", headers=headers, timeout=120) as answer:
        for _ in answer.iter_lines():
            pass


def longest_idle_s(watcher: psycopg.Connection[Any]) -> float:
    """Seconds that the longest idle transaction has lasted, looked at after a short pause in the server."""
    row = watcher.execute(
        "SELECT coalesce(max(extract(epoch FROM clock_timestamp() - state_change)), 0), pg_sleep(0.1)"
        " FROM pg_stat_activity WHERE state = 'idle in transaction'"
    ).fetchone()
    assert row is not None
    return float(row[0])
