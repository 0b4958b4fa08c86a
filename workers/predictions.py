"""The worker's side of predictions and exports: threads that take tasks, one for each predict slot and one for exports.

They need no device and no trainer, so a full fleet never keeps them waiting. They are woken by the doorbell, and look
each second without one. Tasks for which code of users runs have threads of their own, as many: such code may be slow,
or mean, and keeps nobody else waiting.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
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
from app.predictions.tasks import Taken, Wanted, export_request, succeed
from workers.answers import Unanswered, answer
from workers.task_taker import LAST_WORDS_S, NO_MODEL, Taker, Tools, Write
from workers.user_exporter import UserExporter
from workers.user_launch import UserCode, UserLaunch, user_code
from workers.user_predictor_handle import UserPredictors

# A predictor holds its models in memory; one that nobody has asked for so long gives it back.
_IDLE_S: Final = 600.0
_MODELS_KEPT: Final = 2
"""Of python models, each with a framework of its own in memory."""


class ModelTasks:
    """Takes tasks from `start` to `stop`; `wake` may be called from any thread at any time."""

    def __init__(self, tools: Tools, slots: int) -> None:
        self._takers: list[Taker] = [_PredictTaker(tools, f"predict-{number}") for number in range(slots)]
        self._takers.append(_ExportTaker(tools, "export"))
        if tools.user_launch is not None:
            launch, pool = tools.user_launch, UserPredictors(tools.user_launch, kept=max(slots, _MODELS_KEPT))
            self._takers += [_CodePredictTaker(tools, f"predict-code-{n}", launch, pool) for n in range(slots)]
            self._takers.append(_CodeExportTaker(tools, "export-code", launch))

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

    def wanted(self) -> Wanted:
        there = self.tools.exports.interpreters
        able = [export_request(form) for form in EXPORT_FILES if FRAMEWORK_OF.get(form) in (None, *there)]
        return Wanted(self.kind, requests=able)

    def carry_out(self, taken: Taken, files: Sequence[Artifact]) -> Write:
        return self._stored(taken, self.tools.exports.make(taken, files))

    def _stored(self, taken: Taken, stored: Sequence[ArtifactFacts]) -> Write:
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


class _CodePredictTaker(Taker):
    """A predict slot for python models; all of them share the models in memory."""

    kind = TaskKind.PREDICT

    def __init__(self, tools: Tools, name: str, launch: UserLaunch, pool: UserPredictors) -> None:
        super().__init__(tools, name)
        self._launch = launch
        self._pool = pool

    def wanted(self) -> Wanted:
        return Wanted(self.kind, self._launch.interpreters.keys())

    def carry_out(self, taken: Taken, files: Sequence[Artifact]) -> Write:
        code = _code_of(self.tools, taken)
        result = answer(taken, files, self.tools.models, self._pool.of(code))

        def write(session: Session, now: datetime) -> Sequence[str]:
            succeed(session, taken, result, now)
            return ()

        return write

    def idle(self) -> None:
        self._pool.idle()

    def close(self) -> None:
        self._pool.stop()
        self.join(LAST_WORDS_S)


class _CodeExportTaker(_ExportTaker):
    """Exports for which the code of a python model runs."""

    def __init__(self, tools: Tools, name: str, launch: UserLaunch) -> None:
        super().__init__(tools, name)
        self._launch = launch

    def wanted(self) -> Wanted:
        return Wanted(self.kind, self._launch.interpreters.keys())

    def carry_out(self, taken: Taken, files: Sequence[Artifact]) -> Write:
        exports = self.tools.exports
        exporter = UserExporter(
            self._launch, _code_of(self.tools, taken), exports.exporter, self._launch.terms.max_artifact_bytes
        )
        return self._stored(taken, replace(exports, exporter=exporter).make(taken, files))


def _code_of(tools: Tools, taken: Taken) -> UserCode:
    with tools.database.read() as session:
        code = user_code(session, taken.job_id)
    if code is None:
        raise Unanswered(NO_MODEL)
    return code
