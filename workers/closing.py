"""The last writes of an attempt: devices free, checkpoints and files stored, the end in the database.

The end must not be lost, so it is tried again for as long as the database is away; only a worker that has to leave
gives up, and then the next start of the worker settles the attempt.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog
from sqlalchemy.orm import Session

from app.artifacts import repository as artifacts_repository
from app.artifacts.repository import ArtifactFacts
from app.broker import CHANNEL_JOURNAL, CHANNEL_WANTED, Bell
from app.db import Database, DatabaseDown
from app.errors import Cause, TrainshedError
from app.jobs import attempts
from app.jobs.endings import Ending, end_attempt
from app.jobs.metrics import Series, series
from app.jobs.states import JobState
from app.storage import Storage
from workers.checkpoint_store import CheckpointStore
from workers.exporting import POINTS
from workers.exports import ExportFailed
from workers.orders import Orders
from workers.outcome import failed, reason_of
from workers.protocol import Artifact
from workers.recorder import Fenced, Recorder
from workers.uploads import UnusableArtifact, discard, store_artifacts

log = structlog.get_logger("worker")

_FIRST_PAUSE_S: Final = 0.1
_LONGEST_PAUSE_S: Final = 5.0
_TRIES_WITH_EVERYTHING: Final = 3


More = Callable[[Mapping[str, Series]], list[Artifact]]
"""Makes further files of a finished training, given its complete series."""


@dataclass(frozen=True)
class Closing:
    """Ends one attempt, in one of three ways; each blocks until it is written, was stale, or was abandoned."""

    database: Database
    bell: Bell
    storage: Storage
    recorder: Recorder
    checkpoints: CheckpointStore
    orders: Orders
    key: tuple[str, int]
    device_ids: Sequence[str]
    quarantine: Callable[[Session, Sequence[str], str], None]
    max_artifact_bytes: int | None = None

    def end(self, ending: Ending, files: Sequence[ArtifactFacts] = ()) -> JobState | None:
        """Store the checkpoints that wait, then write the rest of the reports, the files and the end at once."""
        self.recorder.stop()
        if self.checkpoints.has_work:
            self._release("uploading")  # nobody is to wait for devices while files are stored
        self._settle_checkpoints()
        state = self._write(lambda session: self._everything(session, ending, files))
        self._ring()
        return state

    def end_with_files(
        self, ending: Ending, artifacts: Sequence[Artifact], work_dir: Path, more: More | None = None
    ) -> None:
        """Give the devices back, make the files that are asked for besides, store all, and only then call it a success.

        Meanwhile the last checkpoints are stored, by their own thread.
        """
        self.recorder.stop()
        try:
            made = [] if more is None else self._make(more)
            self._release("uploading")
            files = store_artifacts(self.storage, [*artifacts, *made], work_dir, *self.key, self.max_artifact_bytes)
        except (UnusableArtifact, ExportFailed, OSError) as error:
            log.warning("files_not_stored", job_id=self.key[0], exc_info=True)
            self.end(failed(Cause.ARTIFACT_UNREADABLE, reason_of(error)))
            return
        state = self.end(ending, files)
        if state is not JobState.SUCCEEDED and not self.orders.abandoned:
            self._discard(files)

    def end_with_quarantine(self, ending: Ending) -> None:
        """End an attempt whose devices are to blame: they are marked, and are not leased any more."""
        reason = ending.detail or "The device reported a fault."
        log.error("devices_quarantined", job_id=self.key[0], devices=list(self.device_ids), reason=reason)
        self.recorder.stop()
        self._settle_checkpoints()

        def write(session: Session) -> JobState | None:
            self.quarantine(session, self.device_ids, reason)
            return self._everything(session, ending, ())

        self._write(write)
        self._ring()

    def _make(self, more: More) -> list[Artifact]:
        """Make files that show the whole training: all that was reported must be in the database first."""
        pause_s = _FIRST_PAUSE_S
        while not self._release("exporting"):
            if self.orders.wait_abandoned(pause_s):
                return []
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        with self.database.read() as session:
            found = series(session, self.key[0], None, POINTS)
        return more(found)

    def _settle_checkpoints(self) -> None:
        self.checkpoints.finish()
        self.recorder.stop()  # once more, for what was said about them

    def _release(self, phase: str) -> bool:
        """Write the rest of the reports and give the devices back; False when the database does not answer.

        A courtesy, not a need: if it cannot be written now, the end writes all of it. The recorder has stopped by then,
        or a late report that the trainer runs could overwrite the phase.
        """
        try:
            with self.database.write() as session:
                self.recorder.write_rest(session)
                attempts.free_devices(session, *self.key, self.database.now(session))
                attempts.set_phase(session, *self.key, phase)
        except Fenced:
            return True
        except DatabaseDown:
            return False
        except Exception:
            log.exception("upload_not_announced", job_id=self.key[0])
            return True
        self.recorder.rest_written()
        self._ring()
        return True

    def _everything(self, session: Session, ending: Ending, files: Sequence[ArtifactFacts]) -> JobState | None:
        self.recorder.write_rest(session)
        now = self.database.now(session)
        state = end_attempt(session, *self.key, ending, now)
        if state is JobState.SUCCEEDED:
            for file in files:
                artifacts_repository.add(session, file, now)  # replaces nothing: a job succeeds once
        return state

    def _bare(self, session: Session) -> JobState | None:
        """Only the end, which also frees the devices of an attempt that is not current any more."""
        ending = failed(Cause.WORKER_LOST, "The end of the attempt could not be written; the worker's log says why.")
        return end_attempt(session, *self.key, ending, self.database.now(session))

    def _write(self, write: Callable[[Session], JobState | None]) -> JobState | None:
        """Repeat a transaction until it is written; None when the attempt was fenced or abandoned meanwhile."""
        pause_s, refusals = _FIRST_PAUSE_S, 0
        while True:
            try:
                with self.database.write() as session:
                    return write(session)
            except Fenced:
                write = self._bare
                continue
            except DatabaseDown:
                log.warning("end_not_written_yet", job_id=self.key[0])
            except Exception:
                log.exception("end_refused", job_id=self.key[0])
                refusals += 1
                if refusals == _TRIES_WITH_EVERYTHING:
                    self.recorder.drop_reports()
                elif refusals == 2 * _TRIES_WITH_EVERYTHING:
                    write = self._bare
            if self.orders.wait_abandoned(pause_s):
                return None
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _discard(self, files: Sequence[ArtifactFacts]) -> None:
        """Remove the files that no row names. A success whose commit was not answered looks stale, and has rows."""
        try:
            with self.database.read() as session:
                named = {row.storage_key for row in artifacts_repository.list_artifacts(session, self.key[0])}
            discard(self.storage, [file for file in files if file.storage_key not in named])
        except (OSError, TrainshedError):
            log.warning("files_not_removed", job_id=self.key[0], exc_info=True)

    def _ring(self) -> None:
        self.bell.ring(CHANNEL_JOURNAL, self.key[0])
        self.bell.ring(CHANNEL_WANTED)
