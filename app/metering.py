"""What this process did, counted for Prometheus, and the listener that shows it.

What the whole service is now (jobs, devices, hosts) is read from the database by `app.api.telemetry`. Here are events:
each process counts its own, from its start on, and queries sum over processes. A counter that is incremented inside a
transaction must wait for its commit: see `on_commit`.

Each registry is shown by the processes that have something to say in it: `ANY` by all, `CONTROL` and `WORKER` by one
kind. A gauge that nobody sets would else be 0 in the others, and a time stamp of 0 means "never".
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    start_http_server,
)
from sqlalchemy import event
from sqlalchemy.orm import Session

from app import __version__
from app.errors import Cause, TrainshedError

ANY: Final = CollectorRegistry()
CONTROL: Final = CollectorRegistry()
WORKER: Final = CollectorRegistry()

NO_CAUSE: Final = "none"
FRAMEWORKS: Final = ("torch", "tensorflow", "python")
ENDS: Final = ("succeeded", "failed", "cancelled")
STEPS: Final = ("schedule", "tell", "reconcile", "holds", "housekeeping")
# From a job that starts at once to one that waits or runs for days.
_LONG: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 10_800.0, 43_200.0, 86_400.0, 604_800.0)

# Else a second series stands beside each counter and histogram, a gauge of when it was made, which nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call] # the library's own
ProcessCollector(registry=ANY)
build_info: Final = Gauge(
    "trainshed_build_info", "Always 1; the labels tell what runs.", ["version", "revision"], registry=ANY
)
jobs_submitted: Final = Counter(
    "trainshed_jobs_submitted", "Jobs that this process accepted.", ["framework"], registry=ANY
)
jobs_finished: Final = Counter(
    "trainshed_jobs_finished",
    "Jobs that this process brought to their end.",
    ["framework", "state", "cause"],
    registry=ANY,
)
queue_wait: Final = Histogram(
    "trainshed_queue_wait_seconds",
    "From the moment at which a job could start to its first placement.",
    buckets=_LONG,
    registry=ANY,
)
job_duration: Final = Histogram(
    "trainshed_job_duration_seconds",
    "From the submit of a job to its end.",
    ["framework", "state"],
    buckets=_LONG,
    registry=ANY,
)
job_run_duration: Final = Histogram(
    "trainshed_job_run_duration_seconds",
    "Time in which trainers of a job ran, all attempts together.",
    ["framework", "state"],
    buckets=_LONG,
    registry=ANY,
)
attempts_lost: Final = Counter(
    "trainshed_job_attempts_lost", "Attempts that ended by no fault of the job.", ["cause"], registry=ANY
)
fenced_writes: Final = Counter(
    "trainshed_job_fenced_writes", "Writes of attempts that were not their job's current one any more.", registry=ANY
)

dispatch_published: Final = Counter(
    "trainshed_dispatch_published", "Placements and stops that a worker was told of by the broker.", registry=CONTROL
)
dispatch_failures: Final = Counter(
    "trainshed_dispatch_failures", "Those that the broker did not take; the worker looks by itself.", registry=CONTROL
)
pass_duration: Final = Histogram(
    "trainshed_scheduling_pass_duration_seconds",
    "Time of one scheduling pass.",
    buckets=(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0),
    registry=CONTROL,
)
scheduler_last_success: Final = Gauge(
    "trainshed_scheduler_last_success_timestamp_seconds", "When the last scheduling pass went well.", registry=CONTROL
)
reconciler_last_success: Final = Gauge(
    "trainshed_reconciler_last_success_timestamp_seconds", "When the last reconciliation went well.", registry=CONTROL
)
housekeeping_last_success: Final = Gauge(
    "trainshed_housekeeping_last_success_timestamp_seconds", "When a chore was last done.", registry=CONTROL
)
step_failures: Final = Counter(
    "trainshed_control_step_failures", "Steps of the control loop that failed.", ["step"], registry=CONTROL
)

lease_renewal_failures: Final = Counter(
    "trainshed_lease_renewal_failures", "Heartbeats that did not reach the database.", registry=WORKER
)
running_attempts: Final = Gauge(
    "trainshed_worker_attempts", "Attempts that this worker supervises now.", registry=WORKER
)


class MetricsPortUnusable(TrainshedError):
    """Nothing can listen where the settings say that metrics are to be had."""

    code = "invalid_settings"

    def __init__(self, address: str, port: int, reason: str) -> None:
        super().__init__(
            f"TRAINSHED_METRICS_PORT: nothing can listen on {address}:{port} ({reason}). "
            "Each process of a host needs a port of its own, for example TRAINSHED_METRICS_PORT=9464; 0 is none."
        )


def on_commit(session: Session, act: Callable[[], object]) -> None:
    """Call `act` once this transaction is committed; never when it is lost."""
    event.listen(session, "after_commit", lambda _session: act(), once=True)


def together(*registries: CollectorRegistry) -> CollectorRegistry:
    """One registry that shows several; they must not have a name in common."""
    whole = CollectorRegistry()
    for registry in registries:
        whole.register(registry)
    return whole


@contextmanager
def exposed(address: str, port: int, *registries: CollectorRegistry) -> Iterator[None]:
    """Answer `GET /metrics` at the address, without a key, while the block runs; port 0: do not.

    Raises:
        MetricsPortUnusable: the address cannot be listened on.
    """
    if not port:
        yield
        return
    try:
        server, thread = start_http_server(port, address, together(*registries))
    except OSError as error:
        raise MetricsPortUnusable(address, port, error.strerror or str(error)) from error
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def describe_build(revision: str) -> None:
    """Say in `trainshed_build_info` what runs; `revision` is empty where nobody told."""
    build_info.clear()
    build_info.labels(__version__, revision).set(1)


def _begin_at_zero() -> None:
    """A series that begins with its first event at 1 shows no increase: Prometheus needs the 0 before it."""
    for framework in FRAMEWORKS:
        jobs_submitted.labels(framework)
        for state in ENDS:
            job_duration.labels(framework, state)
            job_run_duration.labels(framework, state)
            for cause in Cause if state == "failed" else (NO_CAUSE,):
                jobs_finished.labels(framework, state, str(cause))
    for cause in (Cause.WORKER_LOST, Cause.DEVICE_UNAVAILABLE, Cause.DEVICE_FAULT):
        attempts_lost.labels(cause.value)
    for step in STEPS:
        step_failures.labels(step)


describe_build("")
_begin_at_zero()
