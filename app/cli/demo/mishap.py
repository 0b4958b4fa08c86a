"""What the demo does to one job of each framework: its trainer is killed while it trains."""

import contextlib
import os
import signal
from collections.abc import Mapping
from typing import Any

from app.cli.client import Client


def kill_once(client: Client, job: Mapping[str, Any]) -> bool:
    """Kill the trainer of a job that has a checkpoint by now; whether that was done.

    The service is the demo's own and runs on this machine, so the pid that the job names is one of ours.
    """
    if job["state"] != "running" or job["attempt"] != 1 or not client.get(f"/v1/jobs/{job['id']}/checkpoints")["data"]:
        return False
    pids = [node["pid"] for attempt in job.get("attempts") or [] for node in attempt["workers"] if node["pid"]]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(pids)
