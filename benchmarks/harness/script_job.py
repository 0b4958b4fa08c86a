"""A script as a job of ours: its bundle uploaded once, then each run from the POST to the final state."""

import io
import time
import zipfile
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks.harness.servers import Server

FINAL: Final = {"succeeded", "failed", "cancelled"}


def upload(server: Server, script: Path) -> str:
    """Make a bundle of one file; its id."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.write(script, script.name)
    headers = {**server.headers, "Content-Type": "application/zip"}
    answer = httpx.post(f"{server.url}/v1/bundles", content=buffer.getvalue(), headers=headers)
    return str(answer.raise_for_status().json()["id"])


def script_spec(framework: str, bundle: str, command: list[str]) -> dict[str, Any]:
    return {
        "framework": framework,
        "script": {"bundle": bundle, "command": command},
        "device_count": 1,
        "device_type": "cpu",
    }


def to_the_end(server: Server, spec: dict[str, Any]) -> float:
    """Seconds from the POST to the final state event, as a client sees it on the event stream."""
    started = time.perf_counter()
    with httpx.Client(base_url=server.url, headers=server.headers, timeout=120) as client:
        job = client.post("/v1/jobs", json=spec).raise_for_status().json()
        stream = {"Accept": "text/event-stream"}
        with client.stream("GET", f"/v1/jobs/{job['id']}/events", headers=stream) as answer:
            for line in answer.iter_lines():
                if line.startswith("data:") and any(f'"state":"{state}"' in line for state in FINAL):
                    break
        took = time.perf_counter() - started
        found = client.get(f"/v1/jobs/{job['id']}").raise_for_status().json()
    if found["state"] != "succeeded":
        raise RuntimeError(f"the job ended {found['state']}: {found.get('detail')}")
    return took
