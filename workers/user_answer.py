"""The answer of a process that ran code of a user's, read with every doubt.

What it says is about its own user's rows, so it may be wrong; but it must be what an answer is.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from app.errors import TrainshedError
from workers.predictor_handle import PredictionRefused

_MOST_ERRORS: Final = 100
_MOST_CHARACTERS: Final = 4_000

_Label = str | bool | int | float
_Number = float | Literal["NaN", "Infinity", "-Infinity"]
_Code = Literal["invalid_rows", "artifact_unreadable", "too_large", "user_code", "export_failed"]


class NoAnswer(TrainshedError):
    """It is no answer."""

    code = "user_code"


class _Record(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class _Note(_Record):
    row: int | None
    column: str | None
    message: str


class _Classes(_Record):
    task: Literal["classification"]
    framework: str
    labels: list[_Label]
    probabilities: list[dict[str, _Number]]
    warnings: list[_Note]


class _Values(_Record):
    task: Literal["regression"]
    framework: str
    values: list[_Number]
    warnings: list[_Note]


class _Error(_Record):
    code: _Code
    message: str
    errors: list[_Note] = Field(max_length=_MOST_ERRORS)


class _Made(_Record):
    name: Literal["model.onnx", "model.keras"]
    media_type: Literal["application/octet-stream"]
    kind: Literal["model"]


class _Said(_Record):
    answer: _Classes | _Values | None = None
    made: _Made | None = None
    error: _Error | None = None
    ready: Literal[True] | None = None


def read(line: bytes, request: Mapping[str, Any]) -> dict[str, Any]:
    """What was answered to a request for rows.

    Raises:
        PredictionRefused: the rows, the model, or the user's code are at fault, it says.
        NoAnswer: it is something else, or has not as many answers as the request has rows.
    """
    said = _said(line)
    if said.answer is None or not _fits(said.answer, request):
        raise NoAnswer("It did not answer each row once.")
    return said.answer.model_dump()


def read_ready(line: bytes) -> None:
    """Whether it can go on. Raises as `read`."""
    if _said(line).ready is None:
        raise NoAnswer("It did not say that it is ready.")


def read_made(line: bytes) -> str:
    """The name of the file that was made. Raises as `read`."""
    said = _said(line)
    if said.made is None:
        raise NoAnswer("It did not say which file it made.")
    return said.made.name


def _said(line: bytes) -> _Said:
    try:
        said = _Said.model_validate_json(line)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "all of it"
        raise NoAnswer(f"It answered with something else than an answer ({where}: {first['msg']}).") from error
    if said.error is not None:
        told = said.error
        errors = [note.model_dump() for note in told.errors]
        raise PredictionRefused(told.code, told.message[:_MOST_CHARACTERS].replace("\0", "\ufffd"), errors)
    return said


def _fits(answer: _Classes | _Values, request: Mapping[str, Any]) -> bool:
    counts = {len(answer.values)} if isinstance(answer, _Values) else {len(answer.labels), len(answer.probabilities)}
    if "rows" in request:
        counts.add(len(request["rows"]))
    return len(counts) == 1
