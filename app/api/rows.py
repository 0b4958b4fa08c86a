"""Rows to predict, as they are posted: JSON or CSV, checked for what can be seen without the model."""

import csv
import io
from dataclasses import dataclass
from typing import Final

import orjson

from app.api.bodies import decode, validated
from app.api.errors import InvalidRequest, MalformedJson, RequestProblem, TooManyRows
from app.api.model_views import DEFAULT_TIMEOUT_S, PredictRequest

CSV: Final = "text/csv"


@dataclass(frozen=True)
class Asked:
    """What the worker gets, as JSON, and how long the client waits."""

    request: str
    timeout_s: float


def read_rows(raw: bytes, content_type: str, timeout_s: float | None, max_rows: int) -> Asked:
    """The rows of a body; `timeout_s` is the query's, which a JSON body may overrule.

    Raises:
        MalformedJson, InvalidRequest: the body is not of this shape.
        TooManyRows: it has more rows than one request may have.
    """
    if content_type.partition(";")[0].strip().lower() == CSV:
        text = _table(raw, max_rows)
        return Asked(orjson.dumps({"csv": text}).decode(), timeout_s or DEFAULT_TIMEOUT_S)
    content = decode(raw)
    rows = content.get("rows") if isinstance(content, dict) else None
    if isinstance(rows, list) and len(rows) > max_rows:
        raise TooManyRows(len(rows), max_rows)
    body = validated(content, PredictRequest)
    try:
        request = orjson.dumps({"rows": body.rows}).decode()
    except orjson.JSONEncodeError as error:  # it reads 1024 levels and writes 254
        raise MalformedJson("The rows are nested too deeply.") from error
    return Asked(request, body.timeout_s or timeout_s or DEFAULT_TIMEOUT_S)


def _table(raw: bytes, max_rows: int) -> str:
    try:
        text = raw.decode("utf-8-sig")
        rows = sum(1 for row in csv.reader(io.StringIO(text, newline="")) if row) - 1
    except UnicodeDecodeError as error:
        raise _problem(f"is not UTF-8 (byte {error.start + 1})") from error
    except csv.Error as error:
        raise _problem(f"is not CSV: {error}") from error
    if rows < 1:
        raise _problem("has no rows; it needs a header and at least one row, for example 'a,b\\n1,2\\n'")
    if rows > max_rows:
        raise TooManyRows(rows, max_rows)
    return text


def _problem(message: str) -> InvalidRequest:
    return InvalidRequest([RequestProblem("", f"The body {message}.")])
