"""One export: the model at hand, a process that makes and checks the files, the files in the storage."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import orjson
import structlog

from app.artifacts.models import Artifact
from app.artifacts.repository import ArtifactFacts, list_artifacts
from app.db import Database
from app.errors import TrainshedError
from app.jobs.metrics import series
from app.predictions.files import EVALUATION, FRAMEWORK_OF, ExportFormat
from app.predictions.tasks import Taken, task_error
from app.storage import Storage
from app.storage.keys import export_key
from workers.answers import Unanswered
from workers.exports import ExportedFile, ExportFailed, Limits
from workers.model_store import ModelStore, ModelUnreadable, digest_of

log = structlog.get_logger("worker")

_LONGEST_S: Final = 120.0
_POINTS: Final = 10_000


class Exporter(Protocol):
    """What makes the files; see workers.exports.run."""

    def __call__(
        self,
        format: ExportFormat,  # noqa: A002 - the word that users write
        model: Path,
        output: Path,
        *,
        interpreter: Path | None = None,
        series: Mapping[str, Mapping[str, Any]] | None = None,
        evaluation: Path | None = None,
        limits: Limits | None = None,
    ) -> list[ExportedFile]: ...


@dataclass(frozen=True)
class Exports:
    """Makes exports on this host. `folder` is for files under way."""

    database: Database
    storage: Storage
    models: ModelStore
    interpreters: Mapping[str, Path]
    folder: Path
    exporter: Exporter

    def make(self, taken: Taken, files: Sequence[Artifact]) -> list[ArtifactFacts]:
        """Make and store the files of a task; no row names them yet.

        Raises:
            Unanswered: why there are none; nothing of them is left in the storage.
        """
        form: ExportFormat = orjson.loads(taken.request)["format"]
        output = self.folder / f"{taken.id}-{taken.claim}"
        output.mkdir(parents=True)
        try:
            with self.models.held(files) as model:
                made = self._run(form, model, output, taken)
            return self._store(taken, made, attempt=files[0].attempt)
        except ExportFailed as failed:
            raise Unanswered(task_error("export_failed", str(failed))) from failed
        except ModelUnreadable as error:
            raise Unanswered(task_error(error.code, str(error)), again=True) from error
        except OSError as error:
            message = "The files could not be stored; the worker's log says why."
            raise Unanswered(task_error("export_failed", message), again=True) from error
        finally:
            shutil.rmtree(output, ignore_errors=True)

    def _run(self, form: ExportFormat, model: Path, output: Path, taken: Taken) -> list[ExportedFile]:
        evaluation = model / EVALUATION
        with self.database.read() as session:
            curves = {name: vars(points) for name, points in series(session, taken.job_id, None, _POINTS).items()}
        return self.exporter(
            form,
            model,
            output,
            interpreter=self.interpreters.get(FRAMEWORK_OF.get(form, "")),
            series=curves,
            evaluation=evaluation if evaluation.is_file() else None,
            limits=Limits(timeout_s=min(_LONGEST_S, taken.left_s)),
        )

    def _store(self, taken: Taken, made: Sequence[ExportedFile], attempt: int) -> list[ArtifactFacts]:
        stored: list[ArtifactFacts] = []
        try:
            for file in made:
                key = export_key(taken.job_id, taken.id, taken.claim, file.name)
                self.storage.put(key, file.path)
                stored.append(
                    ArtifactFacts(
                        job_id=taken.job_id,
                        name=file.name,
                        attempt=attempt,
                        kind=file.kind,
                        media_type=file.media_type,
                        size_bytes=file.path.stat().st_size,
                        digest=digest_of(file.path),
                        storage_key=key,
                    )
                )
        except OSError:
            self.discard(taken.job_id, [fact.storage_key for fact in stored])
            raise
        return stored

    def discard(self, job_id: str, keys: Sequence[str]) -> None:
        """Remove stored files that no row names. After a commit whose answer was lost, rows name them after all."""
        try:
            with self.database.read() as session:
                named = {artifact.storage_key for artifact in list_artifacts(session, job_id)}
            for key in keys:
                if key not in named:
                    self.storage.delete(key)
        except (OSError, TrainshedError):
            log.warning("files_not_removed", job_id=job_id, exc_info=True)
