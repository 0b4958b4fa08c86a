"""Ends attempts that the database believes this worker runs, and that nobody runs any more."""

import os
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from app.db import Database, DatabaseDown
from app.errors import Cause
from app.jobs.attempts import OpenAttempt, open_attempts
from app.jobs.endings import Ending, end_attempt
from workers.launch import lock_names, sweep
from workers.locks import take
from workers.proof import locks_free

log = structlog.get_logger("worker")

LOST: Final = "The worker was restarted or killed while it ran the job."
NEVER_STARTED: Final = "The worker took the job, but the database's answer was lost; nothing was started."


@dataclass(frozen=True)
class Settler:
    """Settles strays of one worker. A free lock is the proof that nothing of an attempt is left; a pid is only a hint.

    Only for a worker that is alone on its host (it holds the host's lock): everything else under these locks is then a
    left-over.
    """

    database: Database
    lock_dir: Path
    instance: str

    def sweep_all(self) -> list[int]:
        """Kill whatever an earlier worker left behind, frozen or not; the pids."""
        if not self.lock_dir.is_dir():
            return []
        killed = sweep(self.lock_dir, [path.name for path in self.lock_dir.glob("*.lock")])
        if killed:
            log.warning("left_overs_killed", pids=killed)
        self._remove_old_files()
        return killed

    def _remove_old_files(self) -> None:
        """Else there would be one file for each job that ever ran here.

        Only now, before the first attempt, nobody can be about to lock one, so no two processes come to lock two files
        of one name. A device's file stays: there are few.
        """
        for path in self.lock_dir.glob("job-*.lock"):
            descriptor = take(str(path))
            if descriptor is not None:
                path.unlink(missing_ok=True)
                os.close(descriptor)

    def settle(self, worker_id: str, running: Container[tuple[str, int]]) -> list[str]:
        """End every open attempt that is not in `running`; the ids of their jobs.

        One whose locks are still held stays open, with its devices, and is looked at again the next time.
        """
        with self.database.read() as session:
            strays = [
                stray for stray in open_attempts(session, worker_id) if (stray.job_id, stray.attempt) not in running
            ]
        return [stray.job_id for stray in strays if self._end_alone(stray)]

    def _end_alone(self, stray: OpenAttempt) -> bool:
        """One that cannot be ended must not keep the host from registering, nor the strays behind it open."""
        try:
            return self._end(stray)
        except DatabaseDown:
            raise
        except Exception:
            log.exception("stray_not_settled", job_id=stray.job_id, attempt=stray.attempt)
            return False

    def _end(self, stray: OpenAttempt) -> bool:
        names = lock_names(stray.job_id, stray.devices)
        if not locks_free(self.lock_dir, names[:1]):
            sweep(self.lock_dir, names[:1])
        if not locks_free(self.lock_dir, names[:1]):
            log.error("stray_holds_its_lock", job_id=stray.job_id, attempt=stray.attempt)
            return False
        ending = self._ending(stray)
        with self.database.write() as session:
            state = end_attempt(session, stray.job_id, stray.attempt, ending, self.database.now(session))
        log.warning("stray_settled", job_id=stray.job_id, attempt=stray.attempt, state=state)
        return True

    def _ending(self, stray: OpenAttempt) -> Ending:
        """A claim of this very instance that has no process was never started, and spends no budget."""
        if stray.instance == self.instance and stray.pid is None:
            return Ending(succeeded=False, cause=Cause.NOT_CLAIMED, detail=NEVER_STARTED)
        return Ending(succeeded=False, cause=Cause.WORKER_LOST, detail=LOST)
