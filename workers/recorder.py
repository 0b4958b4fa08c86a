"""Writes what the spool holds into the database, from a thread of its own, so that draining the trainer never waits."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import structlog
from sqlalchemy.orm import Session

from app.broker import CHANNEL_JOURNAL, Bell
from app.db import Database, DatabaseDown
from app.jobs import attempts
from app.jobs.resumption import Resumption
from app.metering import fenced_writes
from workers.spool import Batch, Spool

log = structlog.get_logger("worker")

_LONGEST_PAUSE_S: Final = 2.0
_DOUBLINGS: Final = 8
_TRIES_OF_ONE_BATCH: Final = 3


@dataclass(frozen=True)
class StartedFacts:
    """The trainer is up: its process, what it says that it runs on, and what it goes on from."""

    process: attempts.ProcessFacts
    facts: dict[str, Any]
    resumed: Resumption | None = None


class Fenced(Exception):
    """The attempt is not the job's current one any more; raised inside a transaction, so that nothing of it stays."""


class Recorder:
    """One attempt's way into the database; at most one transaction per `interval_s`.

    `on_fenced` is called, once, from the recorder's thread when the database says that the attempt is not current.
    `measured` answers how the attempt's cards have worked so far; it is written with each telemetry entry and the end.
    """

    def __init__(
        self,
        database: Database,
        bell: Bell,
        spool: Spool,
        attempt: tuple[str, int],
        *,
        interval_s: float,
        on_fenced: Callable[[], None],
        measured: Callable[[], attempts.Measured | None] = lambda: None,
    ) -> None:
        self._database = database
        self._bell = bell
        self._spool = spool
        self._job_id, self._attempt = attempt
        self._interval_s = interval_s
        self._on_fenced = on_fenced
        self._measured = measured
        self._started: StartedFacts | None = None
        self._failures = 0
        self._refusals = 0
        self._rest: list[Batch] = []
        self._turn = threading.Lock()
        self._stop = threading.Event()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"record-{self._job_id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def started(self, facts: StartedFacts) -> None:
        self._started = facts
        self._spool.filled.set()
        self._hurry.set()  # a state that people wait for is not held back for the pace of reports

    def stop(self) -> None:
        """Stop the thread; what is not written yet is kept for `write_rest`."""
        self._stop.set()
        self._spool.filled.set()
        self._hurry.set()
        self._thread.join()
        with self._turn:
            while (batch := self._spool.take()) is not None:
                self._rest.append(batch)
                self._spool.written()

    def catch_up(self) -> None:
        """Write now what was reported until now, from another thread, and return when it is written.

        For what must not be in the database before the reports that came before it. After `stop` the reports are the
        end's to write. A report that the database refuses for itself is left to the recorder's own thread.

        Raises:
            Fenced: the attempt is not current.
            DatabaseDown: the database cannot be reached; nothing was written.
        """
        with self._turn:
            if self._stop.is_set():
                return
            try:
                self._write_now()
            except (Fenced, DatabaseDown):
                raise
            except Exception:
                log.exception("report_refused", job_id=self._job_id, attempt=self._attempt)

    def write_rest(self, session: Session) -> None:
        """Write all that is left in the caller's transaction; may be repeated when that transaction was lost.

        Raises:
            Fenced: the attempt is not current.
        """
        now = self._database.now(session)
        if self._started is not None:
            self._write_started(session, self._started, now)
        for batch in self._rest:
            self._write(session, batch, now)
        self._write_measured(session)

    def rest_written(self) -> None:
        """The transaction of `write_rest` was committed."""
        self._started = None
        self._rest.clear()

    def drop_reports(self) -> None:
        """Give up on reports that the database refuses, so that they do not take the end of the attempt with them."""
        self._rest.clear()

    def _run(self) -> None:
        structlog.contextvars.bind_contextvars(job_id=self._job_id, attempt=self._attempt)
        while not self._stop.is_set():
            if not self._failures:
                self._spool.filled.wait()
            self._spool.filled.clear()
            self._hurry.clear()
            pause_s = self._flush()
            if not self._stop.is_set():
                self._hurry.wait(pause_s)

    def _flush(self) -> float:
        """Write what there is now, in one transaction; answers how long to wait before the next one."""
        with self._turn:
            try:
                written = self._write_now()
            except Fenced:
                self._stop.set()
                self._on_fenced()
                return 0.0
            except DatabaseDown:
                self._failures += 1
                return min(self._interval_s * 2.0 ** min(self._failures, _DOUBLINGS), _LONGEST_PAUSE_S)
            except Exception:
                log.exception("report_refused", job_id=self._job_id, attempt=self._attempt)
                self._give_up_on_poison(self._spool.take())
                return self._interval_s
        return self._interval_s if written else 0.0

    def _write_now(self) -> bool:
        """One transaction with all that waits; False when nothing does. Whoever calls it has the turn."""
        started, batch = self._started, self._spool.take()
        if started is None and batch is None:
            return False
        with self._database.write() as session:
            now = self._database.now(session)
            if started is not None:
                self._write_started(session, started, now)
            if batch is not None:
                self._write(session, batch, now)
        self._failures = self._refusals = 0
        if started is self._started:
            self._started = None
        if batch is not None:
            self._spool.written()
        self._bell.ring(CHANNEL_JOURNAL, self._job_id)
        return True

    def _give_up_on_poison(self, batch: Batch | None) -> None:
        """A report that the database refuses for itself must not stop all reports behind it."""
        self._failures += 1
        self._refusals += 1
        if self._refusals >= _TRIES_OF_ONE_BATCH and batch is not None:
            self._failures = self._refusals = 0
            self._spool.written()
            self._spool.notice("report_lost", f"A report with {len(batch.entries)} entries could not be written.")

    def _write_started(self, session: Session, started: StartedFacts, now: datetime) -> None:
        # False may also mean that an earlier try was written although its answer was lost: the journal's fence decides.
        attempts.mark_running(
            session, self._job_id, self._attempt, started.process, started.facts, now, started.resumed
        )
        self._require(attempts.record(session, self._job_id, self._attempt, [], None, None, now))

    def _write(self, session: Session, batch: Batch, now: datetime) -> None:
        job_id, attempt = self._job_id, self._attempt
        if batch.best is not None:
            self._require(attempts.record(session, job_id, attempt, [], None, batch.best, now))
        self._require(attempts.record(session, job_id, attempt, batch.entries, batch.progress, batch.metrics, now))
        if any(entry.kind == "telemetry" for entry in batch.entries):
            self._write_measured(session)

    def _write_measured(self, session: Session) -> None:
        measured = self._measured()
        if measured is not None:
            attempts.keep_measured(session, self._job_id, self._attempt, measured)

    def _require(self, written: bool) -> None:  # noqa: FBT001 - the answer of a write, passed through
        if not written:
            fenced_writes.inc()
            raise Fenced
