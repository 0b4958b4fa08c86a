"""The files that a job asked for in `exports`, made from its model after the training, when its devices are free."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

from app.jobs.metrics import Series
from app.predictions.files import EVALUATION, MODEL_FILES
from workers.exports import ExportedFile, Format
from workers.protocol import Artifact
from workers.uploads import checked_path

FOLDER: Final = "exports"
POINTS: Final = 10_000
"""Of each series, as many points at most go into a report; its extremes are among them."""
_KERAS: Final = "keras"
_KERAS_NEEDS: Final = "tensorflow"


class Export(Protocol):
    """`workers.exports.run`, or what stands for it in a test."""

    def __call__(
        self,
        format: Format,  # noqa: A002 - the word that users write
        model: Path,
        output: Path,
        *,
        interpreter: Path | None = None,
        series: Mapping[str, Mapping[str, Any]] | None = None,
        evaluation: Path | None = None,
    ) -> list[ExportedFile]: ...


def make_exports(
    export: Export,
    formats: Sequence[Format],
    artifacts: Sequence[Artifact],
    work_dir: Path,
    interpreters: Mapping[str, Path],
    wanted: Callable[[], bool],
    series: Mapping[str, Series],
) -> list[Artifact]:
    """Make the files of each format; what comes back is stored like the trainer's own artifacts.

    `wanted` is asked before each format: a job that is cancelled meanwhile needs no more files.

    Of the trainer's files only those are read that would be stored too: regular, and inside its work directory.

    Raises:
        ExportFailed: with the reason.
        UnusableArtifact: a file that is needed is not one of those.
    """
    announced = {artifact.name: artifact for artifact in artifacts}  # the last one counts, as when they are stored
    model = model_folder(announced.values(), work_dir)
    evaluation = checked_path(announced[EVALUATION], work_dir) if EVALUATION in announced else None
    points = {name: asdict(values) for name, values in series.items()}
    made: list[Artifact] = []
    for name in formats:
        if not wanted():
            break
        output = work_dir / FOLDER / name
        output.mkdir(parents=True)
        interpreter = interpreters.get(_KERAS_NEEDS) if name == _KERAS else None
        files = export(name, model, output, interpreter=interpreter, series=points, evaluation=evaluation)
        made += [_artifact(file, work_dir) for file in files]
    return made


def model_folder(artifacts: Iterable[Artifact], work_dir: Path) -> Path:
    """Where the trainer has left the model; each file of one that lies there has been looked at.

    Raises:
        UnusableArtifact: one of them is a link or leads out of the work directory.
    """
    model = next(file for file in artifacts if file.kind == "model")
    folder = checked_path(model, work_dir).parent
    for name in MODEL_FILES:
        if os.path.lexists(folder / name):
            path = str((folder / name).relative_to(work_dir.resolve()))
            checked_path(Artifact(name=name, path=path, media_type="", kind="model"), work_dir)
    return folder


def _artifact(file: ExportedFile, work_dir: Path) -> Artifact:
    path = file.path.relative_to(work_dir)
    return Artifact(name=file.name, path=str(path), media_type=file.media_type, kind=file.kind)
