"""A real worker in a process of its own, with short times, over the test's own database and Redis."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = ("-m", "app.cli.processes.worker")
LIMIT_S = 60


@dataclass
class WorkerProcess:
    process: subprocess.Popen[bytes]
    log_file: Path

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def ready(self) -> bool:
        """Celery consumes."""
        assert self.process.poll() is None, self.log
        return " ready." in self.log

    def stop(self, signum: int = signal.SIGTERM) -> int:
        self.process.send_signal(signum)
        return self.process.wait(LIMIT_S)

    def modules(self) -> str:
        """Every file that the process has mapped."""
        return Path(f"/proc/{self.process.pid}/maps").read_text()


def settings(folder: Path, database_url: str, broker_url: str, **changes: str) -> dict[str, str]:
    """Times in seconds, as the environment has them."""
    values = {
        "TRAINSHED_HOME": str(folder),
        "TRAINSHED_RUN_DIR": str(folder / "run"),
        "TRAINSHED_DATABASE_URL": database_url,
        "TRAINSHED_BROKER_URL": broker_url,
        "TRAINSHED_HOST_ID": "box",
        "TRAINSHED_DEVICES": "cpu",
        "TRAINSHED_CPU_SLOTS": "1",
        "TRAINSHED_HEARTBEAT_S": "10",
        "TRAINSHED_CLAIM_S": "15",
        "TRAINSHED_STOP_GRACE_S": "10",
    }
    return values | changes


@contextmanager
def worker_process(
    folder: Path, environment: dict[str, str], program: tuple[str, ...] = PROGRAM
) -> Iterator[WorkerProcess]:
    """`program` is what Python is told to run; it is `trainshed worker`, or something that ends in it."""
    log_file = folder / "worker.log"
    with log_file.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-P", *program],
            env={**os.environ, **environment},
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        yield WorkerProcess(process, log_file)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        try:
            process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
