"""Problem documents (RFC 9457): the one table from an error's code to its status, and the one shape of an error."""

import dataclasses
from dataclasses import dataclass
from typing import Any, Final, Protocol, runtime_checkable

import orjson
from starlette.responses import Response

from app.errors import TrainshedError

MEDIA_TYPE: Final = "application/problem+json"


@runtime_checkable
class _Pointed(Protocol):
    """An error about one field of the body."""

    pointer: str
    suggestion: str | None


@dataclass(frozen=True)
class Kind:
    """What every error with one code has in common; `members` are attributes that the answer shows too."""

    status: int
    title: str
    members: tuple[str, ...] = ()


PROBLEMS: Final[dict[str, Kind]] = {
    "malformed_http": Kind(400, "Not an HTTP request"),
    "malformed_json": Kind(400, "The body is not JSON"),
    "malformed_upload": Kind(400, "The upload is broken"),
    "host_not_allowed": Kind(400, "Host name not allowed"),
    "invalid_event_id": Kind(400, "No such event"),
    "unauthenticated": Kind(401, "A working API key is needed"),
    "forbidden": Kind(403, "The key's role is too low", ("role", "required")),
    "code_not_allowed": Kind(403, "The key may not bring code", ("required_permission",)),
    "not_found": Kind(404, "Not found"),
    "method_not_allowed": Kind(405, "Method not allowed"),
    "conflict": Kind(409, "The state does not allow it"),
    "state_conflict": Kind(409, "The job's state does not allow it", ("state", "legal")),
    "job_needed": Kind(409, "Other jobs need it", ("jobs",)),
    "bundle_in_use": Kind(409, "Jobs need the bundle", ("jobs",)),
    "devices_busy": Kind(409, "The devices are busy"),
    "no_model": Kind(409, "The job has no model", ("state",)),
    "wrong_framework": Kind(409, "Not for this framework"),
    "body_too_large": Kind(413, "The body is too large", ("limit",)),
    "too_many_rows": Kind(413, "Too many rows", ("limit",)),
    "archive_too_large": Kind(413, "The archive is too large", ("limit",)),
    "answer_too_large": Kind(413, "The answer is too large"),
    "unsupported_media_type": Kind(415, "Wrong content type"),
    "range_not_satisfiable": Kind(416, "Range not satisfiable"),
    "head_too_large": Kind(431, "The headers are too large", ("limit",)),
    "invalid_request": Kind(422, "The request is not valid"),
    "invalid_spec": Kind(422, "The spec is not valid"),
    "invalid_data": Kind(422, "The data cannot be used"),
    "invalid_rows": Kind(422, "The rows do not fit the model"),
    "model_failed": Kind(422, "The model's own code failed"),
    "not_an_archive": Kind(422, "Not a ZIP archive"),
    "unsafe_archive": Kind(422, "The archive is not safe", ("entry",)),
    "invalid_bundle": Kind(422, "The archive is no bundle"),
    "not_enabled": Kind(422, "Not enabled here"),
    "insufficient_devices": Kind(422, "No host has enough devices", ("maximum",)),
    "idempotency_mismatch": Kind(422, "The key was used for another body"),
    "too_many_streams": Kind(429, "Too many streams"),
    "queue_full": Kind(429, "The queue is full"),
    "too_many_predictions": Kind(429, "Too many predictions wait", ("limit",)),
    "internal": Kind(500, "The server failed"),
    "model_unreadable": Kind(500, "The model cannot be read"),
    "export_failed": Kind(500, "The export failed"),
    "unavailable": Kind(503, "Not available now"),
    "no_worker_online": Kind(503, "No worker is online"),
    "task_lost": Kind(503, "The workers that tried disappeared"),
    "task_expired": Kind(503, "Nobody answered in time"),
    "schema_not_ready": Kind(503, "The database is not migrated"),
    "storage_unavailable": Kind(503, "The storage cannot be used"),
    "database_unavailable": Kind(503, "The database does not answer"),
}


def kind_of(error: TrainshedError) -> tuple[str, Kind]:
    """The code and kind of an error; one that the table does not know is a fault of ours, hence `internal`."""
    kind = PROBLEMS.get(error.code)
    return ("internal", PROBLEMS["internal"]) if kind is None else (error.code, kind)


def problem_type(code: str) -> str:
    """The `type` member: a reference that the server itself answers with an explanation."""
    return f"/docs/errors#{code}"


def document(error: TrainshedError, request_id: str) -> dict[str, Any]:
    """The problem document of `error`."""
    code, kind = kind_of(error)
    content: dict[str, Any] = {
        "type": problem_type(code),
        "title": kind.title,
        "status": kind.status,
        "detail": str(error),
        "code": code,
        "request_id": request_id,
    }
    content |= {name: getattr(error, name, None) for name in kind.members}
    problems = getattr(error, "problems", None)
    if problems:
        content["errors"] = [dataclasses.asdict(problem) for problem in problems]
    elif isinstance(error, _Pointed):
        content["errors"] = [{"pointer": error.pointer, "message": str(error), "suggestion": error.suggestion}]
    return content


def problem_response(error: TrainshedError, request_id: str) -> Response:
    """`error` as an answer; a 413 also closes the connection, since its body has not been read."""
    content = document(error, request_id)
    return Response(
        orjson.dumps(content, default=str),
        status_code=content["status"],
        headers=_headers(error, content["status"]),
        media_type=MEDIA_TYPE,
    )


def _headers(error: TrainshedError, status: int) -> dict[str, str]:
    headers: dict[str, str] = dict(getattr(error, "headers", {}))
    if status == 401:  # noqa: PLR2004 - RFC 9110 asks for this header with exactly this status
        headers["WWW-Authenticate"] = 'Bearer realm="trainshed"'
    if status == 413:  # noqa: PLR2004 - the rest of the body is on its way and must not be taken for a request
        headers["Connection"] = "close"
    retry_after = getattr(error, "retry_after_s", 1 if status in (429, 503) else None)
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    return headers
