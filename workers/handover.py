"""The end of a training that went well: its files written, read back, and handed to whoever stores them.

    model.safetensors, model.json   the model, as `workers.model_file` describes it
    probe.safetensors               a few encoded rows `x` and the `outputs` that the framework computed for them
    split.safetensors               row numbers of each part, as the table counts them, int64
    evaluation.json                 all that is measured of the validation and the test part
    environment.json                what it was trained on
    code.zip                        the user's code, of a model that it builds

Before anything is announced the model is read back from the disk and answers the probe, in NumPy, or, where the user's
code builds it, in a fresh model of it: a model that nobody can load is found out now, not by its first user.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors.numpy import save_file

from app.errors import Cause
from app.spec import EffectiveSpec
from app.spec.training import Precision
from workers.backends.base import TrainingFailed
from workers.backends.initial import Weights
from workers.blueprint import Blueprint
from workers.context import Context
from workers.data.dataset import Dataset
from workers.data.split import PART_NAMES, PartName
from workers.environment_record import ENVIRONMENT_NAME
from workers.evaluation import Evaluator
from workers.model_file import (
    PROBE_NAME,
    PythonTrained,
    TrainedModel,
    UnreadableModel,
    forward,
    read,
    read_probe,
    save,
    save_python,
)
from workers.model_file.rounding import room_for_rounding
from workers.protocol import ArtifactKind
from workers.user_model.checking import check_python
from workers.user_model.module import UserModule

MODEL_FOLDER: Final = "model"
SPLIT_NAME: Final = "split.safetensors"
EVALUATION_NAME: Final = "evaluation.json"

PROBE_ROWS: Final = 8

_MEDIA: Final = {".json": "application/json", ".zip": "application/zip"}

TOLERANCES: Final[Mapping[Precision, float]] = {"float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""How far NumPy's float32 answer may be from the framework's, as a share of the largest output."""


@dataclass(frozen=True)
class Finished:
    """What a training has come to; `epoch` is that of the weights."""

    spec: EffectiveSpec
    blueprint: Blueprint
    data: Dataset
    weights: Weights
    metrics: Mapping[str, float]
    epoch: int
    environment: Mapping[str, Any]


def hand_over(work_dir: Path, context: Context, finished: Finished, evaluator: Evaluator) -> list[str]:
    """Write the files, check the model, announce all; returns the names under which they are stored.

    Raises:
        TrainingFailed: the saved model cannot be read back, or answers otherwise; cause `artifact_unreadable`.
        OSError: the disk is full.
    """
    folder = work_dir / MODEL_FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    models = [*_save(folder, finished), _write_probe(folder / PROBE_NAME, finished.data, evaluator)]
    _check(folder, finished)
    split = folder / SPLIT_NAME
    data = finished.data
    save_file({name: data.row_numbers[data.division.rows(name)] for name in PART_NAMES}, split)
    measured: dict[str, Any] = {"epoch": finished.epoch}
    measured |= {name: evaluator.report(name) for name in PART_NAMES if name != "train"}
    evaluation = _write_json(folder / EVALUATION_NAME, measured)
    environment = _write_json(folder / ENVIRONMENT_NAME, finished.environment)
    kinds: list[tuple[Path, ArtifactKind]] = [(path, "model") for path in models]
    kinds += [(split, "report"), (evaluation, "report"), (environment, "environment")]
    for path, kind in kinds:
        context.artifact(path.name, path, _MEDIA.get(path.suffix, "application/octet-stream"), kind)
    return [path.name for path, _ in kinds]


def _save(folder: Path, finished: Finished) -> list[Path]:
    module = finished.blueprint.module
    return save(folder, _model(finished)) if module is None else save_python(folder, _python_model(finished, module))


def _check(folder: Path, finished: Finished) -> None:
    module, precision = finished.blueprint.module, finished.spec.hyperparameters.precision
    if module is None:
        check(folder, precision)
    else:
        check_python(folder, module, precision)


def check(folder: Path, precision: Precision = "float32") -> None:
    """Load a saved model as a user would, and compare its answers to the probe with those of the framework.

    Raises:
        TrainingFailed: it cannot be read, or answers otherwise; cause `artifact_unreadable`.
    """
    try:
        description, weights = read(folder)
        probe = read_probe(folder)
    except UnreadableModel as error:
        raise TrainingFailed(f"The saved model cannot be read back: {error}", Cause.ARTIFACT_UNREADABLE) from error
    if probe is None:
        raise TrainingFailed(f"The saved model has no '{PROBE_NAME}' to be tried with.", Cause.ARTIFACT_UNREADABLE)
    found = forward(description.layers, weights, probe.x)
    scale = max(1.0, float(np.abs(probe.outputs).max()))
    rounding = room_for_rounding(description.layers, weights, probe.x, precision, found)
    allowed = TOLERANCES[precision] * scale + rounding
    # Not "more than": a NaN is not more than anything.
    if found.shape != probe.outputs.shape or not np.abs(found - probe.outputs).max() <= allowed:
        raise TrainingFailed(
            "The saved model does not answer as the trained one did: read back from the disk, its outputs for "
            f"{len(probe.outputs)} rows are not those of the framework, to {TOLERANCES[precision]:g} of the largest. "
            "Nothing was handed over. Please report this, with the spec.",
            Cause.ARTIFACT_UNREADABLE,
        )


def _model(finished: Finished) -> TrainedModel:
    data = finished.data
    return TrainedModel(
        weights=finished.weights,
        layers=finished.blueprint.layers,
        encoder=data.encoder,
        classes=data.vocabulary.labels if data.vocabulary else None,
        target=data.target,
        spec=finished.spec,
        metrics=finished.metrics,
    )


def _python_model(finished: Finished, module: UserModule) -> PythonTrained:
    data, environment = finished.data, finished.environment
    return PythonTrained(
        weights=finished.weights,
        entrypoint=module.entrypoint,
        parameters=module.parameters,
        archive=finished.blueprint.archive,
        versions={
            name: str(environment[name]) for name in ("python", "numpy", module.framework) if name in environment
        },
        encoder=data.encoder,
        classes=data.vocabulary.labels if data.vocabulary else None,
        target=data.target,
        spec=finished.spec,
        metrics=finished.metrics,
    )


def _write_probe(path: Path, data: Dataset, evaluator: Evaluator) -> Path:
    """Take rows that the model was not trained on, if there are any."""
    order: tuple[PartName, ...] = ("test", "validation", "train")
    part = next(name for name in order if len(data.parts[name]))
    x = np.array(data.parts[part].x[:PROBE_ROWS], order="C")
    save_file({"x": x, "outputs": np.array(evaluator.outputs(part, PROBE_ROWS), order="C")}, path)
    return path


def _write_json(path: Path, content: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return path
