"""The shapes of predictions and exports: bodies that are read, and answers for OpenAPI and the tests."""

from datetime import datetime
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.api.views import ArtifactView, Framework, Number, View
from app.predictions.files import ExportFormat
from app.predictions.states import TaskState

DEFAULT_TIMEOUT_S: Final = 30.0
LONGEST_TIMEOUT_S: Final = 60.0
TimeoutS = Annotated[
    float,
    Field(
        gt=0,
        le=LONGEST_TIMEOUT_S,
        allow_inf_nan=False,
        description="How long to wait for the answer (30); after that it is 202, and goes on.",
    ),
]


class PredictRequest(BaseModel):
    """Raw rows as they were in the table that the model learned from, without the target."""

    model_config = ConfigDict(extra="forbid", strict=True)

    rows: Annotated[
        list[dict[str, Any]],
        Field(min_length=1, description="One object a row: column name to value.", examples=[[{"age": 41}]]),
    ]
    timeout_s: Annotated[TimeoutS | None, Field(examples=[30])] = None


class ExportRequest(BaseModel):
    """`keras` is only for models of tensorflow."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: Annotated[ExportFormat, Field(examples=["onnx"])]
    timeout_s: Annotated[TimeoutS | None, Field(examples=[30])] = None


class TaskProblem(View):
    """One problem of the rows: `pointer` into the body. `row` counts from 1; of a CSV file its header is row 1."""

    pointer: str
    message: str
    suggestion: str | None = None
    place: Literal["body"] = "body"
    row: int | None = None
    column: str | None = None


class TaskError(View):
    """Why it failed; `code` as in problem documents."""

    code: str
    message: str
    errors: list[TaskProblem]


class RowWarning(View):
    """What was answered all the same, but should be known; rows as in `TaskProblem`."""

    row: int | None
    column: str | None
    message: str


class ModelOf(View):
    job: str
    framework: Framework


class PredictionView(View):
    """A prediction. One answer a row, in the rows' order: `labels` with `probabilities`, or `values`."""

    id: str
    object: Literal["prediction"]
    job_id: str
    state: TaskState
    labels: list[Any] | None = Field(description="Of a classification: the original labels.")
    probabilities: list[dict[str, Number]] | None = Field(description="Of a classification: label to probability.")
    values: list[Number] | None = Field(description="Of a regression: in the target's own unit.")
    warnings: list[RowWarning]
    model: ModelOf
    error: TaskError | None
    created_at: datetime
    deadline: datetime
    finished_at: datetime | None


class ExportView(View):
    """An export. `id` and the times are null when its files were there already."""

    id: str | None
    object: Literal["export"]
    job_id: str
    format: ExportFormat
    state: TaskState
    artifacts: list[ArtifactView]
    error: TaskError | None
    created_at: datetime | None
    deadline: datetime | None
    finished_at: datetime | None
