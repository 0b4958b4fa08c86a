"""One worker per host: it owns all devices, and everything under its locks that it did not start is a left-over."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from app.errors import Conflict
from app.settings import InvalidSettings
from workers.locks import take
from workers.sweep import holders

_NAME: Final = "worker.lock"


class WorkerRunning(Conflict):
    """Another worker of this host is alive."""

    code = "worker_running"

    def __init__(self, run_dir: Path, pids: Sequence[int]) -> None:
        who = f" (process {', '.join(map(str, pids))})" if pids else ""
        super().__init__(
            f"Another worker{who} uses '{run_dir}'. One worker runs all jobs of a host; stop it first, or give this "
            "one a directory of its own by TRAINSHED_RUN_DIR, for example TRAINSHED_RUN_DIR=/var/lib/trainshed/run-2."
        )
        self.run_dir = run_dir


class HostLock:
    """A kernel lock, held until `release` or the end of the process, however it ends."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock, or find out who has it.

        Raises:
            WorkerRunning: somebody has.
            InvalidSettings: the directory cannot be used.
        """
        try:
            self._run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._descriptor = take(str(self._run_dir / _NAME))
        except OSError as error:
            raise InvalidSettings(
                f"TRAINSHED_RUN_DIR '{self._run_dir}' cannot be used by user {os.geteuid()}: {error.strerror}. It must "
                "be a local directory that this user may write to, for example /var/lib/trainshed/run."
            ) from error
        if self._descriptor is None:
            raise WorkerRunning(self._run_dir, holders(self._run_dir, [_NAME]))

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
