"""The OpenAPI document: FastAPI's, completed with what our routes read and answer by hand."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from app.api.auth import is_public
from app.api.fleet_views import QuarantineRequest
from app.api.hold_views import HoldChange, HoldRequest
from app.api.key_views import KeyChange, KeyRequest
from app.api.model_views import ExportRequest, PredictRequest
from app.api.problems import MEDIA_TYPE, PROBLEMS, problem_type
from app.api.registration import DatasetRequest
from app.api.routing import PERMISSION_KEY
from app.api.views import Problem
from app.spec import JobSpec, ScriptSpec

TAGS: Final = [
    {"name": "Jobs", "description": "Submit training jobs, follow them, stop them, and fetch what they made."},
    {"name": "Models", "description": "Predict with trained models, and export them for other programs."},
    {"name": "Datasets", "description": "Upload tables to train on. Built-in ones need no upload."},
    {"name": "Bundles", "description": "Upload code to train with, as a ZIP or a wheel."},
    {"name": "Fleet", "description": "Hosts, their devices, and who holds them."},
    {"name": "Keys", "description": "API keys: who may do what. For admins."},
    {"name": "Service", "description": "Whether the service lives, is ready, and how it is doing."},
]
_DESCRIPTION: Final = """\
Training jobs over HTTP, on your own GPUs: post a spec, get a trained model.

Press **Authorize** and paste your key. Errors are problem documents (RFC 9457); `code` is stable, and `/docs/errors`
explains each. Lists are pages: pass `next_after` of one as `after` of the next.
"""
_MODELS: Final[dict[str, type[BaseModel]]] = {
    "DatasetRequest": DatasetRequest,
    "ExportRequest": ExportRequest,
    "HoldChange": HoldChange,
    "HoldRequest": HoldRequest,
    "JobSpec": JobSpec,
    "KeyChange": KeyChange,
    "KeyRequest": KeyRequest,
    "PredictRequest": PredictRequest,
    "Problem": Problem,
    "QuarantineRequest": QuarantineRequest,
    "ScriptSpec": ScriptSpec,
}
_REF: Final = "#/components/schemas/"


def problems(*codes: str) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route for errors of its own; those that every route can have are added to all."""
    found: dict[int | str, dict[str, Any]] = {}
    for code in codes:
        _add(found, code)
    return found


def json_body(model: str | tuple[str, ...], examples: dict[str, Any] | None = None) -> dict[str, Any]:
    """`openapi_extra` of a route that reads its JSON body itself; `model` is a name in `_MODELS`, or several."""
    schemas = [{"$ref": _REF + name} for name in ((model,) if isinstance(model, str) else model)]
    content: dict[str, Any] = {"schema": {"anyOf": schemas} if schemas[1:] else schemas[0]}
    if examples:
        content["examples"] = examples
    return {"requestBody": {"required": True, "content": {"application/json": content}}}


def text_answer(description: str, media_type: str = "text/plain") -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route whose success is not JSON."""
    return {200: {"description": description, "content": {media_type: {"schema": {"type": "string"}}}}}


def openapi_of(app: FastAPI) -> dict[str, Any]:
    """Build the document once and keep it."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, description=_DESCRIPTION, routes=app.routes, tags=TAGS
        )
        schemas = schema.setdefault("components", {}).setdefault("schemas", {})
        for unused in ("HTTPValidationError", "ValidationError"):
            schemas.pop(unused, None)
        for name, model in _MODELS.items():
            _add_model(schemas, name, model)
        schema["components"]["securitySchemes"] = {
            "key": {"type": "http", "scheme": "bearer", "description": "An API key: `ts_…`"}
        }
        for path, operations in schema["paths"].items():
            for method, operation in operations.items():
                _complete(path, method, operation)
        app.openapi_schema = schema
    return app.openapi_schema


def _add_model(schemas: dict[str, Any], name: str, model: type[BaseModel]) -> None:
    own = model.model_json_schema(ref_template=_REF + "{model}")
    for inner, definition in own.pop("$defs", {}).items():
        schemas.setdefault(inner, definition)
    schemas.setdefault(name, own)


def _complete(path: str, method: str, operation: dict[str, Any]) -> None:
    """Add what every route of this form can answer."""
    answers = operation["responses"]
    if "HTTPValidationError" in str(answers.get("422")):  # FastAPI's own, which no route of ours answers
        del answers["422"]
    codes = ["internal", "unavailable", "host_not_allowed"]
    if not is_public(path):
        operation["security"] = [{"key": []}]
        codes += ["unauthenticated", "forbidden", "database_unavailable", "schema_not_ready"]
    if PERMISSION_KEY in operation:
        codes.append("code_not_allowed")
    if operation.get("parameters"):
        codes.append("invalid_request")
    if "{" in path:
        codes.append("not_found")
    if method in ("post", "put", "patch", "delete"):
        codes += ["body_too_large", "unsupported_media_type"]
    for code in codes:
        _add(answers, code)
    operation["responses"] = dict(sorted(answers.items(), key=lambda item: str(item[0])))


def _add(answers: dict[int | str, dict[str, Any]], code: str) -> None:
    kind = PROBLEMS[code]
    keys: Iterable[int | str] = (kind.status, str(kind.status))
    answer = next((answers[key] for key in keys if key in answers), None)
    if answer is None:
        answer = answers[str(kind.status)] = {"description": HTTPStatus(kind.status).phrase}
    content = answer.setdefault("content", {}).setdefault(
        MEDIA_TYPE, {"schema": {"$ref": f"{_REF}Problem"}, "examples": {}}
    )
    example = {
        "type": problem_type(code),
        "title": kind.title,
        "status": kind.status,
        "detail": kind.title + ".",
        "code": code,
        "request_id": "req_01k0000000000000000000000",
    }
    content["examples"][code] = {"summary": kind.title, "value": example}
