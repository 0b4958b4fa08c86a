"""The worker's side of predictions and exports: threads that take tasks, one for each predict slot and one for exports.

They need no device and no trainer, so a full fleet never keeps them waiting. They are woken by the doorbell, and look
each second without one.
"""

import time
from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

import orjson
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.artifacts import repository as artifacts_repository
from app.artifacts.models import Artifact
from app.artifacts.repository import ArtifactFacts
from app.jobs.models import Job
from app.predictions.files import EXPORT_FILES, FRAMEWORK_OF
from app.predictions.states import TaskKind
from app.predictions.tasks import Taken, export_request, succeed
from workers.answers import answer
from workers.task_taker import LAST_WORDS_S, Taker, Tools, Write

# A predictor holds its models in memory; one that nobody has asked for so long gives it back.
_IDLE_S: Final = 600.0


class ModelTasks:
    """Takes tasks from `start` to `stop`; `wake` may be called from any thread at any time."""

    def __init__(self, tools: Tools, slots: int) -> None:
        self._takers: list[Taker] = [_PredictTaker(tools, f"predict-{number}") for number in range(slots)]
        self._takers.append(_ExportTaker(tools, "export"))

    def start(self, worker_id: str) -> None:
        """Begin to take tasks as this worker, which has registered."""
        for taker in self._takers:
            taker.start(worker_id)

    def wake(self, kind: str | None = None) -> None:
        """There may be something to do, of this kind or of any."""
        for taker in self._takers:
            if kind in (None, taker.kind.value):
                taker.rung.set()

    def stop(self) -> None:
        """Take nothing new, give what is under way a moment, put the rest back. Harmless twice, and without a start."""
        for taker in self._takers:
            taker.ask_stop()
        until = time.monotonic() + LAST_WORDS_S
        for taker in self._takers:
            taker.join(until - time.monotonic())
        for taker in self._takers:
            taker.close()


class _PredictTaker(Taker):
    """A predict slot: it has a predictor of its own, which starts with the first prediction."""

    kind = TaskKind.PREDICT

    def __init__(self, tools: Tools, name: str) -> None:
        super().__init__(tools, name)
        self._predictor = tools.make_predictor()
        self._used_at: float | None = None

    def carry_out(self, taken: Taken, files: Sequence[Artifact]) -> Write:
        self._used_at = time.monotonic()
        result = answer(taken, files, self.tools.models, self._predictor)

        def write(session: Session, now: datetime) -> Sequence[str]:
            succeed(session, taken, result, now)
            return ()

        return write

    def idle(self) -> None:
        if self._used_at is not None and time.monotonic() - self._used_at > _IDLE_S:
            self._predictor.stop()
            self._used_at = None

    def close(self) -> None:
        # What it is asked now ends with an error, and its task goes back into the queue.
        self._predictor.stop()
        self.join(LAST_WORDS_S)


class _ExportTaker(Taker):
    kind = TaskKind.EXPORT

    def requests(self) -> Collection[str]:
        there = self.tools.exports.interpreters
        return [export_request(form) for form in EXPORT_FILES if FRAMEWORK_OF.get(form) in (None, *there)]

    def carry_out(self, taken: Taken, files: Sequence[Artifact]) -> Write:
        stored = self.tools.exports.make(taken, files)
        return lambda session, now: self._record(session, taken, stored, now)

    def _record(self, session: Session, taken: Taken, stored: Sequence[ArtifactFacts], now: datetime) -> Sequence[str]:
        """The task's end and the files' rows, in one transaction."""
        # The row of the job is locked first, as whoever ends its attempts does.
        there = session.execute(select(Job.id).where(Job.id == taken.job_id).with_for_update()).scalar()
        result = orjson.dumps({"names": [fact.name for fact in stored]}).decode()
        if there is None or not succeed(session, taken, result, now):
            return [fact.storage_key for fact in stored]
        replaced = [artifacts_repository.add(session, fact, now) for fact in stored]
        return [key for key in replaced if key is not None]
