"""The content of model.json, in its own format and in that of the first version.

It is data, not a program: a name in it selects one of our own layers, and nothing else.
"""

from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from app.spec.job import Framework, Task
from app.spec.layers import Layer, Shape
from workers.data.labels import Label

WEIGHTS_NAME: Final = "model.safetensors"
DESCRIPTION_NAME: Final = "model.json"
PROBE_NAME: Final = "probe.safetensors"
"""A few encoded rows `x` and the `outputs` that the framework computed for them, beside the model for every check."""

FORMAT: Final = "trainshed-model/2"
FIRST_FORMAT: Final = "trainshed-model/1"

Layers: TypeAlias = list[Annotated[Layer, Field(discriminator="type")]]


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


class Format(_Record):
    """The one field that every version has."""

    format: str


class Description(_Record):
    """The content of model.json.

    `encoder` turns raw rows into `input_shape` numbers each (see `workers.data.encoding`); `classes` are the labels in
    the order of the outputs; `target_scaling` brings a regression's output into the target's own unit. `spec` is kept
    as it was posted and completed; reading a model does not need it.
    """

    format: Literal["trainshed-model/2"] = FORMAT
    framework: Framework
    task: Task
    features: list[str]
    target: str
    encoder: dict[str, Any]
    input_shape: Shape
    layers: Layers
    classes: list[Label] | None
    target_scaling: Columns | None
    seed: int
    metrics: dict[str, float]
    spec: dict[str, Any]
    weights: WeightsFile

    @property
    def outputs(self) -> int:
        """How many values the last layer gives."""
        return 1 if self.classes is None else len(self.classes)


class FirstDescription(_Record):
    """The content of a model.json of the first version: features are numbers, each with a mean and a scale."""

    format: Literal["trainshed-model/1"]
    framework: Framework
    task: Task
    features: list[str]
    target: str
    layers: Layers
    inputs: Columns
    classes: list[Label] | None
    target_scaling: Columns | None
    seed: int
    metrics: dict[str, float]
    spec: dict[str, Any]
    weights: WeightsFile
