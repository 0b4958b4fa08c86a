"""The files that a job asked for in `exports`, made from its model after the training, when its devices are free."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Protocol

from app.jobs.metrics import Series
from workers.exports import ExportedFile, Format
from workers.protocol import Artifact

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

    Raises:
        ExportFailed: with the reason.
    """
    model = model_folder(artifacts, work_dir)
    evaluation = next((work_dir / file.path for file in artifacts if file.name == "evaluation.json"), None)
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


def model_folder(artifacts: Sequence[Artifact], work_dir: Path) -> Path:
    """Where the trainer has left the model."""
    model = next(file for file in artifacts if file.kind == "model")
    return (work_dir / model.path).parent


def _artifact(file: ExportedFile, work_dir: Path) -> Artifact:
    path = file.path.relative_to(work_dir)
    return Artifact(name=file.name, path=str(path), media_type=file.media_type, kind=file.kind)
