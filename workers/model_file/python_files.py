"""The files of a user's own model written and read back: weights, description, and the archive of its code."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from app.spec import EffectiveSpec
from workers.backends.initial import Weights
from workers.data.encoding import Encoder
from workers.data.labels import Label
from workers.data.standardise import Scaling
from workers.model_file.contradictions import python_contradiction
from workers.model_file.description import DESCRIPTION_NAME, WEIGHTS_NAME, Columns, Format, WeightsFile
from workers.model_file.errors import UnreadableModel
from workers.model_file.files import encoder_of
from workers.model_file.python_description import CODE_NAME, PYTHON_FORMAT, CodeFile, PythonDescription, PythonSource
from workers.model_file.reading import description_bytes, digest, parsed, require_digest, weights_of


@dataclass(frozen=True)
class PythonTrained:
    """What is saved: weights by the names of the framework, and what turns raw rows into answers.

    `archive`: the bundle as it was uploaded; None where the module is in the worker's environment. `versions`: of
    Python and the framework.
    """

    weights: Weights
    entrypoint: str
    parameters: Mapping[str, object]
    archive: Path | None
    versions: Mapping[str, str]
    encoder: Encoder
    classes: Sequence[Label] | None
    target: Scaling | None
    spec: EffectiveSpec
    metrics: Mapping[str, float]


def save_python(directory: Path, model: PythonTrained) -> list[Path]:
    """Write the model's files into the directory and return them; the description, which names the digests, last."""
    weights_path, code_path = directory / WEIGHTS_NAME, directory / CODE_NAME
    save_file({name: np.array(value, order="C") for name, value in model.weights.items()}, weights_path)
    if model.archive is not None:
        shutil.copyfile(model.archive, code_path)
    spec, scaling = model.spec, model.target
    description = PythonDescription(
        framework=spec.framework,
        task=spec.task,
        features=spec.data.features,
        target=spec.data.target,
        encoder=model.encoder.to_json(),
        input_shape=model.encoder.input_shape,
        python=PythonSource(
            entrypoint=model.entrypoint,
            parameters=dict(model.parameters),
            framework=spec.framework,
            versions=dict(model.versions),
            code=None if model.archive is None else CodeFile(sha256=digest(code_path)),
        ),
        classes=None if model.classes is None else list(model.classes),
        target_scaling=None if scaling is None else Columns(mean=scaling.mean.tolist(), scale=scaling.scale.tolist()),
        seed=spec.hyperparameters.seed,
        metrics=dict(model.metrics),
        spec=spec.model_dump(mode="json"),
        weights=WeightsFile(sha256=digest(weights_path)),
    )
    description_path = directory / DESCRIPTION_NAME
    description_path.write_text(description.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return [weights_path, *([] if model.archive is None else [code_path]), description_path]


def is_python(directory: Path) -> bool:
    """Whether the model there is of a user's own code.

    Raises:
        UnreadableModel: it is no model at all.
    """
    return parsed(Format, directory, description_bytes(directory)).format == PYTHON_FORMAT


def read_python(directory: Path) -> tuple[PythonDescription, Weights]:
    """Read the files of a user's own model and check that they belong together; nothing of its code is executed.

    Raises:
        UnreadableModel: a file is missing, of another format, or not the one that was saved.
    """
    content = description_bytes(directory)
    if parsed(Format, directory, content).format != PYTHON_FORMAT:
        raise UnreadableModel(directory, "it is made of layers, not of a user's own code.")
    description = parsed(PythonDescription, directory, content)
    if description.python.code is not None:
        require_digest(directory, CODE_NAME, description.python.code.sha256)
    weights = weights_of(directory, description.weights.sha256)
    problem = python_contradiction(description, weights, encoder_of(directory, description))
    if problem is not None:
        raise UnreadableModel(directory, problem)
    return description, weights
