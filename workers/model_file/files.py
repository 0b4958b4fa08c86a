"""A model's two files written, and read back with every doubt: what comes from a disk may be anything."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from app.spec import EffectiveSpec, Layer
from workers.backends.initial import Weights
from workers.data.encoding import Encoder
from workers.data.fitted import NumberInput
from workers.data.labels import Label
from workers.data.standardise import Scaling
from workers.model_file.contradictions import contradiction
from workers.model_file.description import (
    DESCRIPTION_NAME,
    FIRST_FORMAT,
    PROBE_NAME,
    WEIGHTS_NAME,
    Columns,
    Description,
    FirstDescription,
    Format,
    WeightsFile,
)
from workers.model_file.errors import UnreadableModel

_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True)
class TrainedModel:
    """What is saved: the weights, and what turns raw rows into their input and their output into an answer."""

    weights: Weights
    layers: Sequence[Layer]
    encoder: Encoder
    classes: Sequence[Label] | None
    target: Scaling | None
    spec: EffectiveSpec
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Probe:
    """A few encoded rows `x`, (rows, *input shape), and the framework's own `outputs` for them, (rows, units)."""

    x: NDArray[np.floating]
    outputs: NDArray[np.floating]


def save(directory: Path, model: TrainedModel) -> list[Path]:
    """Write the model's files into the directory and return them; the description, which names the digest, last."""
    weights_path, description_path = directory / WEIGHTS_NAME, directory / DESCRIPTION_NAME
    save_file({name: np.array(value, order="C") for name, value in model.weights.items()}, weights_path)
    description = Description(
        framework=model.spec.framework,
        task=model.spec.task,
        features=model.spec.data.features,
        target=model.spec.data.target,
        encoder=model.encoder.to_json(),
        input_shape=model.encoder.input_shape,
        layers=list(model.layers),
        classes=None if model.classes is None else list(model.classes),
        target_scaling=None
        if model.target is None
        else Columns(mean=model.target.mean.tolist(), scale=model.target.scale.tolist()),
        seed=model.spec.hyperparameters.seed,
        metrics=dict(model.metrics),
        spec=model.spec.model_dump(mode="json"),
        weights=WeightsFile(sha256=_digest(weights_path)),
    )
    description_path.write_text(description.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return [weights_path, description_path]


def read_probe(directory: Path) -> Probe | None:
    """Read the probe; None where a model has none, as those of the first version.

    Raises:
        UnreadableModel: there is a file, and it is no probe.
    """
    path = directory / PROBE_NAME
    if not path.exists():
        return None
    found = _arrays(directory, PROBE_NAME)
    if set(found) != {"x", "outputs"} or len(found["x"]) != len(found["outputs"]) or not len(found["x"]):
        raise UnreadableModel(directory, f"'{PROBE_NAME}' does not hold rows 'x' with an output each.")
    return Probe(found["x"], found["outputs"])


def read(directory: Path) -> tuple[Description, Weights]:
    """Read a model's files and check that they belong together.

    Raises:
        UnreadableModel: a file is missing, of another format, or not the one that was saved.
    """
    description = _description(directory)
    try:
        digest = _digest(directory / WEIGHTS_NAME)
    except OSError as error:
        raise _absent(directory, error) from error
    if digest != description.weights.sha256:
        raise UnreadableModel(directory, f"'{WEIGHTS_NAME}' is not the file that '{DESCRIPTION_NAME}' belongs to.")
    weights = _arrays(directory, WEIGHTS_NAME)
    problem = contradiction(description, weights, encoder_of(directory, description))
    if problem is not None:
        raise UnreadableModel(directory, problem)
    return description, weights


def encoder_of(directory: Path, description: Description) -> Encoder:
    """Build the encoder that the description holds; `directory` is what an error names."""
    try:
        return Encoder.from_json(description.encoder)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableModel(directory, f"its encoder cannot be read ({type(error).__name__}: {error}).") from error


def _description(directory: Path) -> Description:
    try:
        content = (directory / DESCRIPTION_NAME).read_bytes()
    except OSError as error:
        raise _absent(directory, error) from error
    if _parsed(Format, directory, content).format == FIRST_FORMAT:
        return _from_first(_parsed(FirstDescription, directory, content))
    return _parsed(Description, directory, content)


def _parsed(model: type[_Model], directory: Path, content: bytes) -> _Model:
    try:
        return model.model_validate_json(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "all of it"
        reason = f"'{DESCRIPTION_NAME}' is no description of a model ({where}: {first['msg']})."
        raise UnreadableModel(directory, reason) from error


def _from_first(first: FirstDescription) -> Description:
    """Bring the first version into today's form; a count of means that does not fit is found as a contradiction."""
    pairs = zip(first.features, first.inputs.mean, first.inputs.scale, strict=False)
    inputs = [NumberInput(name, Scaling(np.array([mean]), np.array([scale]))) for name, mean, scale in pairs]
    return Description(
        encoder=Encoder(tuple(inputs), others=(first.target,)).to_json(),
        input_shape=(len(first.features),),
        **{name: getattr(first, name) for name in FirstDescription.model_fields if name not in {"format", "inputs"}},
    )


def _arrays(directory: Path, name: str) -> Weights:
    try:
        return dict(load_file(directory / name))
    except OSError as error:
        raise _absent(directory, error) from error
    except (SafetensorError, KeyError, ValueError) as error:  # the last two: a type that NumPy does not have
        raise UnreadableModel(directory, f"'{name}' is no file of weights ({error}).") from error


def _absent(directory: Path, error: OSError) -> UnreadableModel:
    return UnreadableModel(directory, f"{error.strerror}: '{Path(str(error.filename)).name}'.")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
