"""Which stored files of a job are its model, and which an export makes."""

from collections.abc import Mapping
from typing import Final, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from app.artifacts.models import Artifact

ExportFormat = Literal["onnx", "keras", "report", "tensorboard"]
WEIGHTS: Final = "model.safetensors"
DESCRIPTION: Final = "model.json"
PROBE: Final = "probe.safetensors"
EVALUATION: Final = "evaluation.json"
# The probe and the evaluation are not there for jobs of older versions, which can predict all the same.
MODEL_FILES: Final = (DESCRIPTION, WEIGHTS, PROBE, EVALUATION)
# What each format makes; the workers' exporters are held to it by a test.
EXPORT_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "onnx": ("model.onnx",),
    "keras": ("model.keras",),
    "report": ("metrics.csv", "report.png"),
    "tensorboard": ("events.out.tfevents.trainshed",),
}
# The framework whose interpreter a format needs, and whose models alone it can hold.
FRAMEWORK_OF: Final[Mapping[str, str]] = {"keras": "tensorflow"}
_NEEDED: Final = frozenset({DESCRIPTION, WEIGHTS})


def model_files(session: Session, job_id: str) -> list[Artifact]:
    """The stored files of the job's model by name; empty when it has none, or not all that a model needs."""
    query = select(Artifact).where(Artifact.job_id == job_id, Artifact.name.in_(MODEL_FILES)).order_by(Artifact.name)
    found = list(session.scalars(query))
    return found if {file.name for file in found} >= _NEEDED else []
