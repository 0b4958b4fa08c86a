"""A trained model as a file of another format, made when somebody asks for it."""

from typing import Any, Final

from anyio.to_thread import run_sync
from fastapi import Request, Response

from app.accounts.service import Principal
from app.api.asking import WAITS, demand_worker, desk_of, later, put_into_queue
from app.api.bodies import decode, json_response, validated
from app.api.filters import JobId
from app.api.model_views import DEFAULT_TIMEOUT_S, ExportRequest, ExportView
from app.api.openapi import json_body, problems
from app.api.predictions import made_by
from app.api.routing import api_router
from app.api.services import PrincipalDep, Services, ServicesDep
from app.artifacts.models import Artifact
from app.artifacts.repository import list_artifacts
from app.jobs.repository import JobRow, get_job
from app.predictions.errors import NoModel, NotThisFramework, TaskFailed
from app.predictions.files import CODE_FORMATS, EXPORT_FILES, FRAMEWORK_OF, is_python_model, model_files
from app.predictions.models import ModelTask
from app.predictions.schemas import export_json, made_export_json
from app.predictions.states import TaskKind, TaskState
from app.predictions.tasks import export_request, open_export

router = api_router(prefix="/v1/jobs/{job_id}/exports", tag="Models")

_EXAMPLES: Final[dict[str, Any]] = {
    form: {"summary": summary, "value": {"format": form}}
    for form, summary in {
        "onnx": "ONNX, for other runtimes",
        "keras": "A .keras file, of a model of tensorflow",
        "report": "Curves and a confusion matrix or residuals as a picture, the metrics as CSV",
        "tensorboard": "An event file for TensorBoard",
    }.items()
}


@router.post(
    "",
    summary="Export a job's model",
    openapi_extra=json_body("ExportRequest", _EXAMPLES),
    responses={
        200: {"model": ExportView, "description": "The files were there already."},
        201: {"model": ExportView, "description": "The files are made, and are among the job's artifacts."},
        202: {"model": ExportView, **WAITS[202]},
        **problems(
            "malformed_json",
            "no_model",
            "wrong_framework",
            "invalid_request",
            "too_many_predictions",
            "model_unreadable",
            "export_failed",
            "no_worker_online",
            "task_lost",
            "task_expired",
        ),
    },
)
async def export_model(job_id: JobId, request: Request, services: ServicesDep, principal: PrincipalDep) -> Response:
    """Make the files of a format, check them against the model's own outputs, and store them as artifacts.

    Repeating is harmless: what is there already, or being made, is not made twice.
    """
    raw = await request.body()

    def ask() -> tuple[str, float] | Response:
        return _ask(services, principal, job_id, raw)

    asked = await run_sync(ask)
    if isinstance(asked, Response):
        return asked
    task = await desk_of(request.app.state).wait(principal.project_id, *asked)
    if task.state in (TaskState.FAILED, TaskState.EXPIRED):
        raise TaskFailed(task.error)
    return await run_sync(_answer, services, task)


def _ask(services: Services, principal: Principal, job_id: str, raw: bytes) -> tuple[str, float] | Response:
    """The task to wait for and for how long; or at once the files that are there."""
    with services.database.read() as session:
        job = get_job(session, principal.project_id, job_id)
        if not model_files(session, job_id):
            raise NoModel(job_id, job.state, job.kind)
        body = validated(decode(raw), ExportRequest)
        framework, runs = _framework(body.format, job)
        there = _files_of(list_artifacts(session, job_id), body.format)
        request = export_request(body.format)
        task_id = open_export(session, job_id, request)
    if there:
        return json_response(made_export_json(job_id, body.format, there))
    if task_id is None:
        demand_worker(services, framework)
        task_id = put_into_queue(services, principal, job_id, TaskKind.EXPORT, request, framework=runs)
    return task_id, body.timeout_s or DEFAULT_TIMEOUT_S


def _framework(form: str, job: JobRow) -> tuple[str | None, str | None]:
    """The framework that a worker must have for it, and the one that must run the user's code for it, if any must.

    Raises:
        NotThisFramework: no model of the job's kind and framework can be of this format.
    """
    if not is_python_model(job.effective_spec):
        needed = FRAMEWORK_OF.get(form)
        if needed not in (None, job.framework):
            raise NotThisFramework(form, job.framework)
        return needed, None
    needed = CODE_FORMATS.get(form)
    if needed not in (None, job.framework):
        raise NotThisFramework(form, job.framework, python=True)
    return needed, needed


def _files_of(artifacts: list[Artifact], form: str) -> list[Artifact]:
    """The artifacts that an export of this format makes, if all are there."""
    names = EXPORT_FILES[form]
    found = [artifact for artifact in artifacts if artifact.name in names]
    return found if len(found) == len(names) else []


def _answer(services: Services, task: ModelTask) -> Response:
    with services.database.read() as session:
        content = export_json(task, made_by(task, list_artifacts(session, task.job_id)))
    if task.state != TaskState.SUCCEEDED:
        return json_response(content, 202, later(task))
    return json_response(content, 201, {"Location": f"/v1/predictions/{task.id}"})
