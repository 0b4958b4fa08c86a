"""Reading a JSON body, and writing one: orjson both ways, because it refuses NaN, deep nesting and broken UTF-8."""

import json
from typing import Any, Final, TypeVar

import orjson
from fastapi import Request
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails
from starlette.responses import Response

from app.api.errors import InvalidRequest, MalformedJson, RequestProblem
from app.spec.nearest import nearest_word
from app.spec.problems import pointer

Body = TypeVar("Body", bound=BaseModel)
_MOST_PROBLEMS: Final = 100
_LONGEST_KEY: Final = 64
_OBJECT: Final = "This must be an object"
_SENTENCES: Final = {
    "dict_type": _OBJECT,
    "model_type": _OBJECT,
    "list_type": "This must be a list",
    "missing": "This key is missing",
    "too_short": "This must not be empty",
}
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
        raise InvalidRequest([_problem(item, model) for item in found]) from error


def _problem(found: ErrorDetails, model: type[BaseModel]) -> RequestProblem:
    """Pydantic's finding in our words: an unknown key with the nearest known one, all else with a valid example."""
    where = pointer(found["loc"])
    if found["type"] == "extra_forbidden":
        key, known = str(found["loc"][-1])[:_LONGEST_KEY], [field.alias or name for name, field in _fields(model)]
        near = nearest_word(key, known)
        instead = f"did you mean '{near}'?" if near else f"its keys are {', '.join(known)}."
        return RequestProblem(where, f"'{key}' is no key of this body; {instead}", near)
    message = _SENTENCES.get(found["type"], found["msg"]).rstrip(".")
    example = _example(found["loc"], model)
    return RequestProblem(where, f"{message}." if example is None else f"{message}, for example {example}.")


def _example(loc: tuple[int | str, ...], model: type[BaseModel]) -> str | None:
    """A value that the place of a problem could have, as JSON: of one key, or of the whole body."""
    known = {field.alias or name: field.examples[0] for name, field in _fields(model) if field.examples}
    if not loc:
        return json.dumps(dict([next(iter(known.items()))])) if known else None
    return json.dumps(known[str(loc[0])]) if str(loc[0]) in known else None


def _fields(model: type[BaseModel]) -> list[tuple[str, FieldInfo]]:
    return list(model.model_fields.items())


def json_response(content: object, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(orjson.dumps(content), status_code=status, headers=headers, media_type="application/json")
