"""The API and the journal beside MLflow's tracking server, both on SQLite, on this machine, in this run."""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from app.db import Database
from app.jobs.attempts import record
from app.jobs.journal import Entry
from app.jobs.lifecycle import move
from app.jobs.states import JobState
from benchmarks.harness.client import Client, rate, seconds_of
from benchmarks.harness.servers import Server, mlflow, trainshed
from benchmarks.harness.table import Row, arguments, at_least, at_most, median_of, show

CLIENTS: Final = 8
SECONDS: Final = 8.0
BATCH: Final = 500
POINTS: Final = 10_000
REPEATS: Final = 15

# A job that waits for a device that no host can give soon: submitting is measured, not training.
SPEC: Final = {
    "framework": "torch",
    "model": {"type": "mlp", "hidden": [64]},
    "data": "digits",
    "device_count": 1,
    "device_type": "cpu",
    "not_before": "2999-01-01T00:00:00Z",
}


@dataclass(frozen=True)
class Figures:
    """Submits and points per second; seconds for one read-back and one list."""

    submits: float
    ingest: float
    read_back_s: float
    list_s: float


def our_figures(server: Server, home: Path) -> Figures:
    def connect() -> Client:
        return Client(server.url, server.headers)

    client = connect()
    made = client.call("POST", "/v1/jobs", SPEC)
    ingest = _our_ingest(home, made["id"])
    path = f"/v1/jobs/{made['id']}/metrics?max_points={POINTS}"
    found = client.call("GET", path)
    if _count(found) != POINTS:
        raise RuntimeError(f"read {_count(found)} points back, not {POINTS}")
    read_back_s = median_of(REPEATS, lambda: seconds_of(lambda: client.call("GET", path)))
    client.close()
    submits = rate(CLIENTS, SECONDS, connect, lambda c: c.call("POST", "/v1/jobs", SPEC))
    listed = median_of(REPEATS, lambda: seconds_of(lambda: client.call("GET", "/v1/jobs?limit=50")))
    return Figures(submits, ingest, read_back_s, listed)


def _count(found: Any) -> int:  # noqa: ANN401 - decoded JSON
    return sum(len(series["value"]) for series in found["data"])


def _our_ingest(home: Path, job_id: str) -> float:
    """Points per second through the call that a worker makes for each report, one commit per report of 500 points.

    The job is moved to `running` as a worker would, so that every report also updates its progress and newest metrics.
    """
    database = Database(f"sqlite:///{home / 'trainshed.db'}")
    with database.write() as session:
        now = datetime.now(UTC)
        for target, attempt, following in ((JobState.STARTING, 0, 1), (JobState.RUNNING, 1, None)):
            if not move(session, job_id, target, attempt=attempt, next_attempt=following, now=now):
                raise RuntimeError(f"the job could not become {target}")

    def write(number: int) -> None:
        steps = list(range(number * BATCH, (number + 1) * BATCH))
        values = [1.0 / (step + 1) for step in steps]
        points = {"loss": {"step": steps, "epoch": [number] * BATCH, "value": values}}
        with database.write() as session:
            entry = Entry("metric", {"points": points})
            kept = record(session, job_id, 1, [entry], {"step": steps[-1]}, {"loss": values[-1]}, datetime.now(UTC))
        if not kept:
            raise RuntimeError("the report was fenced")

    took = seconds_of(lambda: repeat(write, POINTS // BATCH))
    database.dispose()
    return POINTS / took


def repeat(write: Callable[[int], None], count: int) -> None:
    for number in range(count):
        write(number)


def mlflow_figures(server: Server) -> Figures:
    client = Client(server.url)
    api = "/api/2.0/mlflow"
    experiment = client.call("POST", f"{api}/experiments/create", {"name": "bench"})["experiment_id"]

    def create(connection: Client) -> str:
        body = {"experiment_id": experiment, "start_time": int(time.time() * 1000)}
        return str(connection.call("POST", f"{api}/runs/create", body)["run"]["info"]["run_id"])

    run = create(client)

    def write(number: int) -> None:
        at = int(time.time() * 1000)
        metrics = [
            {"key": "loss", "value": 1.0 / (step + 1), "timestamp": at, "step": step}
            for step in range(number * BATCH, (number + 1) * BATCH)
        ]
        client.call("POST", f"{api}/runs/log-batch", {"run_id": run, "metrics": metrics})

    ingest = POINTS / seconds_of(lambda: repeat(write, POINTS // BATCH))
    path = f"{api}/metrics/get-history?run_id={run}&metric_key=loss&max_results={POINTS}"
    if len(client.call("GET", path)["metrics"]) != POINTS:
        raise RuntimeError("MLflow did not give every point back")
    read_back_s = median_of(REPEATS, lambda: seconds_of(lambda: client.call("GET", path)))
    client.close()
    submits = rate(CLIENTS, SECONDS, lambda: Client(server.url), create)
    body = {"experiment_ids": [experiment], "max_results": 50}
    listed = median_of(REPEATS, lambda: seconds_of(lambda: client.call("POST", f"{api}/runs/search", body)))
    return Figures(submits, ingest, read_back_s, listed)


def compare(ours: Figures, peer: Figures | None) -> list[Row]:
    name = "MLflow"

    def of(pick: Callable[[Figures], float]) -> float | None:
        return None if peer is None else pick(peer)

    return [
        at_least("submits per second, 8 clients", ours.submits, of(lambda f: f.submits), name, 5),
        at_least("metric values ingested per second", ours.ingest, of(lambda f: f.ingest), name, 10),
        at_most("read-back of 10 000 points, s", ours.read_back_s, of(lambda f: f.read_back_s), name, 10),
        at_most("list of 50, s", ours.list_s, of(lambda f: f.list_s), name, 5),
    ]


def main() -> None:
    options = arguments(__doc__ or "")
    peer: Figures | None = None
    with tempfile.TemporaryDirectory(prefix="tsb") as name:
        folder = Path(name)
        with ExitStack() as stack:
            home = folder / "home"
            service = stack.enter_context(trainshed(home, TRAINSHED_MAX_QUEUED_JOBS="1000000"))
            ours = our_figures(service, home)
        if options.peer_python is not None and options.peer_python.exists():
            with mlflow(options.peer_python, folder) as server:
                peer = mlflow_figures(server)
    show(f"API ({os.cpu_count()} cores, Python {sys.version.split()[0]})", compare(ours, peer), options.json)


if __name__ == "__main__":
    main()
