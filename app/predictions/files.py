"""Which stored files of a job are its model, and which an export makes."""

from collections.abc import Mapping
from typing import Final, Literal

import orjson
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.artifacts.models import Artifact

ExportFormat = Literal["onnx", "keras", "report", "tensorboard"]
WEIGHTS: Final = "model.safetensors"
DESCRIPTION: Final = "model.json"
PROBE: Final = "probe.safetensors"
EVALUATION: Final = "evaluation.json"
CODE: Final = "code.zip"
# The probe and the evaluation are not there for jobs of older versions, which can predict all the same; the code is
# that of a python model, if it came in a bundle.
MODEL_FILES: Final = (DESCRIPTION, WEIGHTS, PROBE, EVALUATION, CODE)
# What each format makes; the workers' exporters are held to it by a test.
EXPORT_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "onnx": ("model.onnx",),
    "keras": ("model.keras",),
    "report": ("metrics.csv", "report.png"),
    "tensorboard": ("events.out.tfevents.trainshed",),
}
# The framework whose interpreter a format needs, and whose models alone it can hold.
FRAMEWORK_OF: Final[Mapping[str, str]] = {"keras": "tensorflow"}
# The frameworks whose python models a format can hold, and for which the user's code runs once more. The other formats
# are made from what was measured: they need no model.
CODE_FORMATS: Final[Mapping[str, str]] = {"onnx": "torch", "keras": "tensorflow"}
_NEEDED: Final = frozenset({DESCRIPTION, WEIGHTS})
_KINDS: Final = ("model", "report")


def is_python_model(effective_spec: str) -> bool:
    """Whether the model of a job, by its effective spec as JSON, is code of a user: to ask it is to run that."""
    model = orjson.loads(effective_spec).get("model")
    return isinstance(model, Mapping) and model.get("type") == "python"


def model_files(session: Session, job_id: str) -> list[Artifact]:
    """The stored files of the job's model by name; empty when it has none, or not all that a model needs.

    What a script left is no model of ours, whatever its files are called.
    """
    query = select(Artifact).where(Artifact.job_id == job_id, Artifact.name.in_(MODEL_FILES))
    query = query.where(Artifact.kind.in_(_KINDS)).order_by(Artifact.name)
    found = list(session.scalars(query))
    return found if {file.name for file in found} >= _NEEDED else []
