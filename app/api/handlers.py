"""Turns what FastAPI and Starlette raise into our errors, so that every answer has one shape."""

from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from app.api.context import request_id_of
from app.api.errors import (
    InternalError,
    InvalidRequest,
    MalformedJson,
    MethodNotAllowed,
    Place,
    RequestProblem,
    RouteNotFound,
)
from app.api.problems import kind_of, problem_response
from app.errors import TrainshedError
from app.spec.problems import pointer

log = structlog.get_logger("trainshed.api")


def install(app: FastAPI) -> None:
    app.add_exception_handler(TrainshedError, _answer)
    app.add_exception_handler(HTTPException, _answer)
    app.add_exception_handler(RequestValidationError, _answer)


async def _answer(request: Request, error: Exception) -> Response:
    known = _translate(request, error)
    if kind_of(known)[0] == "internal":
        log.error("request failed", method=request.method, path=request.url.path, exc_info=error)
        known = InternalError()
    return problem_response(known, request_id_of(request.scope))


def _translate(request: Request, error: Exception) -> TrainshedError:
    if isinstance(error, TrainshedError):
        return error
    if isinstance(error, RequestValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        return _http(request, error)
    return InternalError()


def _http(request: Request, error: HTTPException) -> TrainshedError:
    by_status: dict[int, TrainshedError] = {
        400: MalformedJson("The body cannot be read."),
        404: RouteNotFound(),
        405: MethodNotAllowed(request.method, _methods_at(request)),
    }
    return by_status.get(error.status_code, InternalError())


def _methods_at(request: Request) -> str:
    """Every method that some route takes at this path; the router itself names those of the first route only."""
    found = {
        method
        for route in request.app.routes
        if isinstance(route, Route) and route.path_regex.match(request.scope["path"])
        for method in route.methods or ()
    }
    return ", ".join(sorted(found))


def _invalid(error: RequestValidationError) -> TrainshedError:
    details: list[dict[str, Any]] = list(error.errors())
    # An id that cannot be one names nothing, exactly like one that nobody has.
    if any(detail["loc"][0] == "path" for detail in details):
        return RouteNotFound()
    return InvalidRequest([_problem(detail) for detail in details])


def _problem(detail: dict[str, Any]) -> RequestProblem:
    start, *inside = detail["loc"]
    place: Place = start if start in ("query", "header") else "body"
    message = detail["msg"] if detail["msg"].endswith(".") else detail["msg"] + "."
    return RequestProblem(pointer(inside), message, None, place)
