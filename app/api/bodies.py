"""Reading a JSON body, and writing one: orjson both ways, because it refuses NaN, deep nesting and broken UTF-8."""

import json
from typing import Any, Final, TypeVar

import orjson
from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from app.api.errors import InvalidRequest, MalformedJson, RequestProblem
from app.spec.problems import pointer

Body = TypeVar("Body", bound=BaseModel)
_MOST_PROBLEMS: Final = 100
_NOT_JSON: Final = (
    "NaN and infinities are not JSON numbers and are accepted nowhere; write a finite number, or leave the key out."
)


def decode(raw: bytes) -> Any:  # noqa: ANN401 - any JSON
    """The JSON value of `raw`.

    Raises:
        MalformedJson: says where, and what is special about NaN; or which key of one object is named twice.
    """
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        if not raw.strip():
            raise MalformedJson("The body is empty; send a JSON object.") from error
        if _has_nonfinite(raw):
            raise MalformedJson(_NOT_JSON) from error
        where = f"at line {error.lineno}, column {error.colno}" if error.lineno else ""
        raise MalformedJson(f"The body is not JSON: {error.msg} {where}".rstrip() + ".") from error
    _refuse_repeats(raw)
    return value


def _refuse_repeats(raw: bytes) -> None:
    """Parsers differ in which of two equal keys counts, so the client might mean another job than the one it gets."""
    try:
        json.loads(raw.decode(), object_pairs_hook=_unique, parse_int=str, parse_float=str)
    except RecursionError as error:
        raise MalformedJson("The body is nested too deeply.") from error


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for name, value in pairs:
        if name in found:
            raise MalformedJson(f"The key '{name[:64]}' is named twice in one object; leave one of them out.")
        found[name] = value
    return found


def _has_nonfinite(raw: bytes) -> bool:
    found: list[str] = []
    try:
        json.loads(raw, parse_constant=found.append)
    except (ValueError, RecursionError):
        return False
    return bool(found)


async def read_model(request: Request, model: type[Body]) -> Body:
    """The body as `model`; every problem with its pointer.

    Raises:
        MalformedJson: the body is not JSON.
        InvalidRequest: it is, but not of this shape.
    """
    return validated(decode(await request.body()), model)


def validated(content: object, model: type[Body]) -> Body:
    """A decoded body as `model`; the first hundred problems, each with its pointer.

    Raises:
        InvalidRequest: it is not of this shape.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        found = error.errors(include_url=False)[:_MOST_PROBLEMS]
        raise InvalidRequest(
            [RequestProblem(pointer(item["loc"]), _sentence(item["msg"])) for item in found]
        ) from error


def _sentence(message: str) -> str:
    return message if message.endswith(".") else message + "."


def json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status_code=status, headers=headers, media_type="application/json")
