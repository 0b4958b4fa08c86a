"""A trained model on disk: weights as safetensors, everything else as JSON, readable without any framework.

    model.safetensors   `<layer>.kernel` (inputs, units) and `<layer>.bias` (units), float32
    model.json          layers, feature names, scalings, classes, the spec it was trained with, SHA-256 of the weights

Both are data, not programs: nothing in them is ever executed. `predict` is the whole inference in NumPy; it takes raw
rows and gives original labels or values in the target's own unit, and is what the frameworks are compared with.
"""

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from app.errors import TrainshedError
from app.spec import EffectiveSpec, Layer
from app.spec.job import Framework, Task
from app.spec.layers import ActivationLayer, DenseLayer
from workers.backends.initial import Weights, weight_shapes
from workers.data.labels import Label
from workers.data.standardise import Scaling

WEIGHTS_NAME: Final = "model.safetensors"
DESCRIPTION_NAME: Final = "model.json"

Values = NDArray[np.floating]


class UnreadableModel(TrainshedError):
    """The directory does not hold a model as we write it."""

    code: ClassVar[str] = "artifact_unreadable"

    def __init__(self, directory: Path, reason: str) -> None:
        super().__init__(f"The model in '{directory.name}' cannot be used: {reason}")
        self.reason = reason


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class Columns(_Record):
    """A scaling: the mean and the scale of each column."""

    mean: list[float]
    scale: list[float]


class WeightsFile(_Record):
    """Which file the description belongs to."""

    file: Literal["model.safetensors"] = WEIGHTS_NAME
    sha256: str


class Description(_Record):
    """The content of model.json. `spec` is kept as it was posted and completed; reading a model does not need it."""

    format: Literal["trainshed-model/1"] = "trainshed-model/1"
    framework: Framework
    task: Task
    features: list[str]
    target: str
    layers: list[Annotated[Layer, Field(discriminator="type")]]
    inputs: Columns
    classes: list[Label] | None
    target_scaling: Columns | None
    seed: int
    metrics: dict[str, float]
    spec: dict[str, Any]
    weights: WeightsFile


@dataclass(frozen=True)
class TrainedModel:
    """What is saved: the weights, and what turns raw rows into their input and their output into an answer."""

    weights: Weights
    layers: Sequence[Layer]
    inputs: Scaling
    classes: Sequence[Label] | None
    target: Scaling | None
    spec: EffectiveSpec
    metrics: Mapping[str, float]


@dataclass(frozen=True)
class Predictions:
    """Answers for rows.

    Classification: `labels`, and `probabilities` of shape (rows, classes), the classes in the order of the file.
    Regression: `values`, shape (rows), in the target's own unit.
    """

    labels: list[Label] | None = None
    probabilities: NDArray[np.float64] | None = None
    values: NDArray[np.float64] | None = None


def save(directory: Path, model: TrainedModel) -> list[Path]:
    """Write the model's files into the directory and return them; the description, which names the digest, last."""
    weights_path, description_path = directory / WEIGHTS_NAME, directory / DESCRIPTION_NAME
    save_file({name: np.array(value, order="C") for name, value in model.weights.items()}, weights_path)
    description = Description(
        framework=model.spec.framework,
        task=model.spec.task,
        features=model.spec.data.features,
        target=model.spec.data.target,
        layers=list(model.layers),
        inputs=_columns(model.inputs),
        classes=None if model.classes is None else list(model.classes),
        target_scaling=None if model.target is None else _columns(model.target),
        seed=model.spec.hyperparameters.seed,
        metrics=dict(model.metrics),
        spec=model.spec.model_dump(mode="json"),
        weights=WeightsFile(sha256=_digest(weights_path)),
    )
    description_path.write_text(description.model_dump_json(indent=1) + "\n", encoding="utf-8")
    return [weights_path, description_path]


def predict(directory: Path, rows: NDArray[np.float64]) -> Predictions:
    """Answer raw rows, shape (rows, features), columns in the order of `features` in model.json.

    Raises:
        UnreadableModel: a file is missing, of another format, or not the one that was saved.
        ValueError: the rows have another number of columns.
    """
    description, weights = read(directory)
    features = description.features
    if rows.ndim != 2 or rows.shape[1] != len(features):  # noqa: PLR2004 - rows and columns
        raise ValueError(
            f"Rows must have {len(features)} columns, {', '.join(features)}; these have shape {rows.shape}."
        )
    x: Values = _scaling(description.inputs).apply(rows).astype(np.float32)
    logits = forward(description.layers, weights, x).astype(np.float64)
    if description.classes is None:
        target = Scaling.identity(1) if description.target_scaling is None else _scaling(description.target_scaling)
        return Predictions(values=target.undo(logits)[:, 0])
    labels = [description.classes[place] for place in logits.argmax(axis=1)]
    return Predictions(labels=labels, probabilities=_softmax(logits))


def read(directory: Path) -> tuple[Description, Weights]:
    """Read a model's files and check that they belong together.

    Raises:
        UnreadableModel: a file is missing, of another format, or not the one that was saved.
    """
    try:
        description = Description.model_validate_json((directory / DESCRIPTION_NAME).read_bytes())
        digest = _digest(directory / WEIGHTS_NAME)
    except OSError as error:
        raise UnreadableModel(directory, f"{error.strerror}: '{Path(str(error.filename)).name}'.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "all of it"
        reason = f"'{DESCRIPTION_NAME}' is no description of a model ({where}: {first['msg']})."
        raise UnreadableModel(directory, reason) from error
    if digest != description.weights.sha256:
        raise UnreadableModel(directory, f"'{WEIGHTS_NAME}' is not the file that '{DESCRIPTION_NAME}' belongs to.")
    try:
        weights = dict(load_file(directory / WEIGHTS_NAME))
    except SafetensorError as error:
        raise UnreadableModel(directory, f"'{WEIGHTS_NAME}' is no file of weights ({error}).") from error
    problem = _contradiction(description, weights)
    if problem is not None:
        raise UnreadableModel(directory, problem)
    return description, weights


def _contradiction(description: Description, weights: Weights) -> str | None:
    """Say what does not fit together; a forward pass over such a model would fail, or be wrong without failing."""
    features = len(description.features)
    wanted: dict[str, tuple[int, ...]] = weight_shapes(description.layers, features)
    found = {name: value.shape for name, value in weights.items()}
    if wanted != found:
        name = next(name for name in (*wanted, *found) if wanted.get(name) != found.get(name))
        return f"the layers need a weight '{name}' of shape {wanted.get(name)}, and there is {found.get(name)}."
    outputs = 1 if description.classes is None else len(description.classes)
    if not wanted or list(wanted.values())[-1] != (outputs,):
        return f"its last layer must have {outputs} outputs."
    if any(len(column) != features for column in (description.inputs.mean, description.inputs.scale)):
        return f"it must scale {features} features."
    return None


def forward(layers: Sequence[Layer], weights: Mapping[str, Values], x: Values) -> Values:
    """Return the logits. Dropout does nothing outside of training."""
    for layer in layers:
        if isinstance(layer, DenseLayer):
            x = x @ weights[f"{layer.name}.kernel"] + weights[f"{layer.name}.bias"]
        elif isinstance(layer, ActivationLayer):
            x = ACTIVATIONS[layer.function](x)
    return x


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _columns(scaling: Scaling) -> Columns:
    return Columns(mean=scaling.mean.tolist(), scale=scaling.scale.tolist())


def _scaling(columns: Columns) -> Scaling:
    return Scaling(np.array(columns.mean), np.array(columns.scale))


_SELU_SCALE: Final = 1.0507009873554805
_SELU_ALPHA: Final = 1.6732632423543772

_erf = np.vectorize(math.erf, otypes=[np.float64])

ACTIVATIONS: Final[Mapping[str, Callable[[Values], Values]]] = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": lambda x: np.exp(-np.logaddexp(0, -x)),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "selu": lambda x: _SELU_SCALE * np.where(x > 0, x, _SELU_ALPHA * np.expm1(np.minimum(x, 0))),
    "gelu": lambda x: (0.5 * x * (1 + _erf(x / math.sqrt(2)))).astype(x.dtype),
    "silu": lambda x: x * np.exp(-np.logaddexp(0, -x)),
    "softplus": lambda x: np.logaddexp(0, x),
    "softsign": lambda x: x / (1 + np.abs(x)),
}
"""The functions of `app.spec.layers`, in forms that neither overflow nor lose small values."""


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))
