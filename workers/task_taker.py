"""A thread of the worker that takes one task after the other and writes how each ended."""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

import structlog
from sqlalchemy.orm import Session

from app.artifacts.models import Artifact
from app.broker import CHANNEL_ANSWERS
from app.db import Database, DatabaseDown
from app.predictions.files import model_files
from app.predictions.states import TaskKind
from app.predictions.tasks import Taken, Wanted, fail, give_back, next_id, take, task_error
from workers.answers import Predictor, Unanswered
from workers.export_tasks import Exports
from workers.model_store import ModelStore
from workers.user_launch import UserLaunch

log = structlog.get_logger("worker")

_LOOK_S: Final = 1.0
_AFTER_FAULT_S: Final = 1.0
LAST_WORDS_S: Final = 3.0
NO_MODEL: Final = task_error("model_unreadable", "The job's model files are not there any more.")
_FAULT: Final = task_error("internal", "The worker failed; its log has the reason.")

Write = Callable[[Session, datetime], Sequence[str]]
"""Writes the end of a task; answers the keys of stored files to be removed after the commit, if no row names them."""


class Rings(Protocol):
    """The doorbell: `ring` never blocks and never raises."""

    def ring(self, channel: str, message: str = "") -> None: ...


@dataclass(frozen=True)
class Tools:
    """What tasks are answered with; `instance` is this start of the worker.

    `user_launch` starts what runs the code of python models; None: this worker runs none.
    """

    database: Database
    bell: Rings
    models: ModelStore
    exports: Exports
    make_predictor: Callable[[], Predictor]
    instance: str
    look_s: float = _LOOK_S
    user_launch: UserLaunch | None = None


class Taker:
    """A thread that takes one task after the other."""

    kind: TaskKind

    def __init__(self, tools: Tools, name: str) -> None:
        self.tools = tools
        self.rung = threading.Event()
        self._stop = threading.Event()
        self._worker_id = ""
        self._answers_database = True
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def wanted(self) -> Wanted:
        """The tasks that this thread can do."""
        return Wanted(self.kind)

    def carry_out(self, taken: Taken, files: Sequence[Artifact]) -> Write:
        """Find the answer; returns what writes it.

        Raises:
            Unanswered: there is none.
        """
        raise NotImplementedError

    def idle(self) -> None:
        """Called when there was nothing to do."""

    def start(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self._thread.start()

    def ask_stop(self) -> None:
        self._stop.set()
        self.rung.set()

    def join(self, timeout_s: float) -> None:
        if self._thread.is_alive():
            self._thread.join(max(timeout_s, 0.0))

    def close(self) -> None:
        """Give up what is under way."""
        self.join(LAST_WORDS_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            # Cleared before the look: a ring during it must lead to another one.
            self.rung.clear()
            try:
                found = self._take()
                if found is not None:
                    self._end(found[0], self._work(*found))
                    continue
                self.idle()
            except DatabaseDown:
                self._say_database_is(answering=False)
            except Exception:
                log.exception("task_failed", kind=self.kind.value)
                self._stop.wait(_AFTER_FAULT_S)
            self.rung.wait(self.tools.look_s)

    def _take(self) -> tuple[Taken, list[Artifact]] | None:
        database, wanted = self.tools.database, self.wanted()
        with database.read() as session:
            waiting = next_id(session, wanted)
        self._say_database_is(answering=True)
        if waiting is None:
            return None
        with database.write() as session:
            now = database.now(session)
            taken = take(session, wanted, self._worker_id, self.tools.instance, now)
            return None if taken is None else (taken, model_files(session, taken.job_id))

    def _work(self, taken: Taken, files: Sequence[Artifact]) -> Write:
        """What writes the end of a task, whatever becomes of it."""
        try:
            return self.carry_out(taken, files) if files else _failing(taken, NO_MODEL)
        except Unanswered as unanswered:
            log.info("task_unanswered", task_id=taken.id, code=unanswered.error["code"], again=unanswered.again)
            return _failing(taken, unanswered.error, again=unanswered.again)
        except Exception:
            log.exception("task_failed", task_id=taken.id, kind=self.kind.value)
            return _failing(taken, _FAULT)

    def _end(self, taken: Taken, write: Write) -> None:
        """Write the end, again and again while the database is away, until the deadline: then nobody waits for it."""
        database = self.tools.database
        until = time.monotonic() + taken.left_s
        while True:
            try:
                with database.write() as session:
                    unwanted = write(session, database.now(session))
            except DatabaseDown:
                self._say_database_is(answering=False)
                if time.monotonic() > until or self._stop.wait(_AFTER_FAULT_S):
                    return
            else:
                break
        self.tools.bell.ring(CHANNEL_ANSWERS, taken.id)
        if unwanted:
            self.tools.exports.discard(taken.job_id, unwanted)

    def _say_database_is(self, *, answering: bool) -> None:
        """Once per change, not once per look."""
        if answering != self._answers_database:
            self._answers_database = answering
            log.info("tasks_go_on") if answering else log.warning("tasks_wait_for_database")


def _failing(taken: Taken, error: Mapping[str, Any], *, again: bool = False) -> Write:
    """Ends the task with an error, or lets another worker try."""

    def write(session: Session, now: datetime) -> Sequence[str]:
        (give_back if again else fail)(session, taken, error, now)
        return ()

    return write
