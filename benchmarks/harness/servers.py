"""Servers for one measurement: started on free ports, checked to be ours, and ended by their own process group."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

_READY_S = 120.0


@dataclass(frozen=True)
class Server:
    """An address, and for ours a key."""

    url: str
    key: str = ""

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server in a group of its own; the whole group is gone afterwards."""
    with log.open("wb") as output:
        child = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=dict(environment), start_new_session=True
        )
    try:
        yield child
    finally:
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(15)


def wait_for(url: str, child: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the address answers, for as long as our child lives."""
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        if child.poll() is not None:
            break
        with contextlib.suppress(httpx.HTTPError):
            if httpx.get(url, timeout=2).is_success:
                return
        time.sleep(0.05)
    raise RuntimeError(f"{url} did not become ready:\n{log.read_text(errors='replace')[-4000:]}")


@contextmanager
def trainshed(home: Path, *options: str, **settings: str) -> Iterator[Server]:
    """The whole service as `trainshed up` with these options starts it."""
    environment = {**os.environ, "TRAINSHED_HOME": str(home), **settings}
    command = [str(Path(sys.executable).with_name("trainshed")), "up", "--quiet", *options]
    log = home.with_suffix(".log")
    with process(command, log, environment) as child:
        client = home / "client.json"
        deadline = time.monotonic() + _READY_S
        while not client.exists() and child.poll() is None and time.monotonic() < deadline:
            time.sleep(0.02)
        if not client.exists():
            raise RuntimeError(log.read_text(errors="replace")[-4000:])
        text = client.read_text(encoding="utf-8")
        url, key = (_field(text, name) for name in ("url", "key"))
        wait_for(f"{url}/readyz", child, log)
        yield Server(url, key)


def _field(text: str, name: str) -> str:
    found = re.search(rf'"{name}":\s*"([^"]+)"', text)
    if found is None:
        raise RuntimeError(f"client.json has no {name}")
    return found.group(1)


@contextmanager
def mlflow(python: Path, folder: Path) -> Iterator[Server]:
    """MLflow's tracking server as its documentation starts it, on SQLite."""
    port = free_port()
    command = [str(python), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    command += ["--default-artifact-root", str(folder / "artifacts")]
    log = folder / "mlflow.log"
    with process(command, log, _peer_environment(folder)) as child:
        wait_for(f"http://127.0.0.1:{port}/health", child, log)
        yield Server(f"http://127.0.0.1:{port}")


@contextmanager
def ray_jobs(python: Path, folder: Path) -> Iterator[Server]:
    """A Ray head node with its job server."""
    port = free_port()
    command = [str(python.with_name("ray")), "start", "--head", "--block", "--num-cpus=2", "--port", str(free_port())]
    command += ["--include-dashboard=true", "--dashboard-host=127.0.0.1", f"--dashboard-port={port}"]
    command += ["--temp-dir", str(folder / "r"), "--disable-usage-stats", "--node-ip-address=127.0.0.1"]
    log = folder / "ray.log"
    with process(command, log, _peer_environment(folder)) as child:
        wait_for(f"http://127.0.0.1:{port}/api/jobs/", child, log)
        yield Server(f"http://127.0.0.1:{port}")


def _peer_environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINSHED_", "VIRTUAL_ENV"))}
    return {**kept, "HOME": str(folder), "RAY_USAGE_STATS_ENABLED": "0", "MLFLOW_DISABLE_TELEMETRY": "true"}
