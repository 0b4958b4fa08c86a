"""The content of model.json, format 3: a model that a function of the user's builds.

It has no layers: only the user's code, run in its framework, can answer with it. That code is beside it, in code.zip,
as a name and a digest; reading the description executes nothing.
"""

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict

from app.spec.job import Framework, Task
from app.spec.layers import Shape
from workers.data.labels import Label
from workers.model_file.description import Columns, WeightsFile

PYTHON_FORMAT: Final = "trainshed-model/3"
CODE_NAME: Final = "code.zip"
"""The bundle, byte for byte as it was uploaded."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, allow_inf_nan=False)


class CodeFile(_Record):
    """Which archive the model's code is in."""

    file: Literal["code.zip"] = CODE_NAME
    sha256: str


class PythonSource(_Record):
    """The function that builds the model. `code` None: its module was in the worker's environment.

    `versions` are those of Python and of the framework, for whoever builds the environment again.
    """

    entrypoint: str
    parameters: dict[str, Any]
    framework: Framework
    versions: dict[str, str]
    code: CodeFile | None


class PythonDescription(_Record):
    """The content of model.json. The fields are those of `Description`, but for `layers`, which is null, and `python`.

    `weights` in the file are by the names of `state_dict` (torch) or by path (Keras), buffers among them.
    """

    format: Literal["trainshed-model/3"] = PYTHON_FORMAT
    framework: Framework
    task: Task
    features: list[str]
    target: str
    encoder: dict[str, Any]
    input_shape: Shape
    layers: None = None
    python: PythonSource
    classes: list[Label] | None
    target_scaling: Columns | None
    seed: int
    metrics: dict[str, float]
    spec: dict[str, Any]
    weights: WeightsFile

    @property
    def outputs(self) -> int:
        """How many values the model gives for a row."""
        return 1 if self.classes is None else len(self.classes)
