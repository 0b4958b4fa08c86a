"""A model's two files written, and read back with every doubt: what comes from a disk may be anything."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

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
from workers.model_file.python_description import PYTHON_FORMAT, PythonDescription
from workers.model_file.reading import arrays, description_bytes, digest, parsed, weights_of


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
        weights=WeightsFile(sha256=digest(weights_path)),
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
    found = arrays(directory, PROBE_NAME)
    if set(found) != {"x", "outputs"} or len(found["x"]) != len(found["outputs"]) or not len(found["x"]):
        raise UnreadableModel(directory, f"'{PROBE_NAME}' does not hold rows 'x' with an output each.")
    return Probe(found["x"], found["outputs"])


def read(directory: Path) -> tuple[Description, Weights]:
    """Read a model's files and check that they belong together.

    Raises:
        UnreadableModel: a file is missing, of another format, or not the one that was saved.
    """
    description = _description(directory)
    weights = weights_of(directory, description.weights.sha256)
    problem = contradiction(description, weights, encoder_of(directory, description))
    if problem is not None:
        raise UnreadableModel(directory, problem)
    return description, weights


def encoder_of(directory: Path, description: Description | PythonDescription) -> Encoder:
    """Build the encoder that the description holds; `directory` is what an error names."""
    try:
        return Encoder.from_json(description.encoder)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise UnreadableModel(directory, f"its encoder cannot be read ({type(error).__name__}: {error}).") from error


def _description(directory: Path) -> Description:
    content = description_bytes(directory)
    version = parsed(Format, directory, content).format
    if version == FIRST_FORMAT:
        return _from_first(parsed(FirstDescription, directory, content))
    if version == PYTHON_FORMAT:
        raise UnreadableModel(directory, "it is of the user's own code, and answers in its framework alone.")
    return parsed(Description, directory, content)


def _from_first(first: FirstDescription) -> Description:
    """Bring the first version into today's form; a count of means that does not fit is found as a contradiction."""
    pairs = zip(first.features, first.inputs.mean, first.inputs.scale, strict=False)
    inputs = [NumberInput(name, Scaling(np.array([mean]), np.array([scale]))) for name, mean, scale in pairs]
    return Description(
        encoder=Encoder(tuple(inputs), others=(first.target,)).to_json(),
        input_shape=(len(first.features),),
        **{name: getattr(first, name) for name in FirstDescription.model_fields if name not in {"format", "inputs"}},
    )
