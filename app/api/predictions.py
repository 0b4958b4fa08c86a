"""Predictions with trained models: raw rows in, original labels or values out."""

import csv
import io
from typing import Annotated, Any, Final

import orjson
from anyio.to_thread import run_sync
from fastapi import Path, Query, Request, Response

from app.accounts.service import Principal, Role
from app.api.asking import WAITS, demand_worker, desk_of, later, put_into_queue
from app.api.bodies import json_response
from app.api.filters import JobId
from app.api.model_views import LONGEST_TIMEOUT_S, ExportView, PredictionView
from app.api.openapi import json_body, problems
from app.api.routing import api_router, role
from app.api.rows import CSV, read_rows
from app.api.services import PrincipalDep, Services, ServicesDep
from app.artifacts.models import Artifact
from app.artifacts.repository import list_artifacts
from app.ids import pattern
from app.jobs.repository import JobRow, get_job
from app.predictions.errors import NoModel, TaskFailed
from app.predictions.files import is_python_model, model_files
from app.predictions.models import ModelTask
from app.predictions.schemas import export_json, prediction_json
from app.predictions.states import TaskKind, TaskState
from app.predictions.tasks import get_task

router = api_router(prefix="/v1", tag="Models")

TaskId = Annotated[str, Path(pattern=pattern("tsk"), description="The id of a prediction or an export.")]
_EXAMPLES: Final[dict[str, Any]] = {
    "iris": {
        "summary": "Rows of iris",
        "value": {
            "rows": [
                {
                    "sepal length (cm)": 5.1,
                    "sepal width (cm)": 3.5,
                    "petal length (cm)": 1.4,
                    "petal width (cm)": 0.2,
                }
            ]
        },
    },
    "penguins": {
        "summary": "Text, and a gap that the model was trained to fill",
        "value": {
            "rows": [{"island": "Biscoe", "bill_length_mm": 47.5, "flipper_length_mm": 218, "sex": None}],
            "timeout_s": 10,
        },
    },
}
_CSV_EXAMPLE: Final = (
    "sepal length (cm),sepal width (cm),petal length (cm),petal width (cm)\n5.1,3.5,1.4,0.2\n6.7,3.0,5.2,2.3\n"
)
_TABLE: Final[dict[str, Any]] = {"schema": {"type": "string"}}


def _body() -> dict[str, Any]:
    extra = json_body("PredictRequest", _EXAMPLES)
    extra["requestBody"]["content"][CSV] = {**_TABLE, "example": _CSV_EXAMPLE}
    return extra | role(Role.VIEWER)


@router.post(
    "/jobs/{job_id}/predict",
    summary="Predict with a job's model",
    openapi_extra=_body(),
    responses={
        200: {"model": PredictionView, "content": {CSV: _TABLE}, "description": "The answers, in the rows' order."},
        202: {"model": PredictionView, **WAITS[202]},
        **problems(
            "malformed_json",
            "no_model",
            "too_many_rows",
            "answer_too_large",
            "invalid_rows",
            "invalid_request",
            "too_many_predictions",
            "model_failed",
            "model_unreadable",
            "no_worker_online",
            "task_lost",
            "task_expired",
        ),
    },
)
async def predict(
    job_id: JobId,
    request: Request,
    services: ServicesDep,
    principal: PrincipalDep,
    timeout_s: Annotated[
        float | None,
        Query(gt=0, le=LONGEST_TIMEOUT_S, allow_inf_nan=False, description="As in the body; for CSV, which has none."),
    ] = None,
) -> Response:
    """Rows as they were in the table the model learned from; the answers are the original labels, or values.

    Send `{"rows": […]}`, or a CSV file with a header as `text/csv`. `Accept: text/csv` gets the answers as CSV. It
    takes no device, creates nothing that lasts, and may be repeated. For a python model its code runs once more, on a
    worker that has its framework.
    """
    raw = await request.body()
    sent = request.headers.get("content-type", "")

    def ask() -> tuple[str, str, float]:
        job = _job(services, principal, job_id)
        asked = read_rows(raw, sent, timeout_s, services.limits.max_predict_rows)
        runs = job.framework if is_python_model(job.effective_spec) else None
        demand_worker(services, runs)
        task_id = put_into_queue(services, principal, job_id, TaskKind.PREDICT, asked.request, framework=runs)
        return task_id, job.framework, asked.timeout_s

    task_id, framework, wait_s = await run_sync(ask)
    task = await desk_of(request.app.state).wait(principal.project_id, task_id, wait_s)
    if task.state in (TaskState.FAILED, TaskState.EXPIRED):
        raise TaskFailed(task.error)
    return await run_sync(_answer, request, task, framework)


@router.get(
    "/predictions/{task_id}",
    summary="Read a prediction or an export",
    responses={200: {"model": PredictionView | ExportView, "content": {CSV: _TABLE}, "description": "As it stands."}},
)
def read_prediction(task_id: TaskId, request: Request, services: ServicesDep, principal: PrincipalDep) -> Response:
    """What took longer than its request: its `state`, then its answer or error. It is forgotten after a day."""
    with services.database.read() as session:
        task = get_task(session, principal.project_id, task_id)
        job = get_job(session, principal.project_id, task.job_id)
        made = list_artifacts(session, task.job_id) if task.kind == TaskKind.EXPORT else []
    if task.kind == TaskKind.EXPORT:
        return json_response(export_json(task, made_by(task, made)))
    return _answer(request, task, job.framework, waiting=200)


def made_by(task: ModelTask, artifacts: list[Artifact]) -> list[Artifact]:
    """Of a job's files those that an export has made and that are still there."""
    names = orjson.loads(task.result)["names"] if task.result is not None else ()
    return [artifact for artifact in artifacts if artifact.name in names]


def _job(services: Services, principal: Principal, job_id: str) -> JobRow:
    with services.database.read() as session:
        job = get_job(session, principal.project_id, job_id)
        if not model_files(session, job_id):
            raise NoModel(job_id, job.state, job.kind)
        return job


def _answer(request: Request, task: ModelTask, framework: str, waiting: int = 202) -> Response:
    content = prediction_json(task, framework)
    if task.state != TaskState.SUCCEEDED:
        return json_response(content, waiting, later(task) if waiting == 202 else None)  # noqa: PLR2004 - a status
    if CSV in request.headers.get("accept", ""):
        return Response(_table(content), media_type=CSV)
    return json_response(content)


def _table(content: dict[str, Any]) -> str:
    """One line a row: `label` and a probability for each class, or `value`; RFC 4180."""
    text = io.StringIO()
    writer = csv.writer(text)
    if content["values"] is not None:
        writer.writerow(["value"])
        writer.writerows([value] for value in content["values"])
        return text.getvalue()
    classes = list(content["probabilities"][0]) if content["probabilities"] else []
    writer.writerow(["label", *(f"probability_{name}" for name in classes)])
    for label, found in zip(content["labels"], content["probabilities"], strict=True):
        writer.writerow([label, *(found[name] for name in classes)])
    return text.getvalue()
