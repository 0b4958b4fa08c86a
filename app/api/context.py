"""The outermost middleware: a request id in and out, safe headers, and an answer to every error that nobody answered.

FastAPI's own handler for exceptions raises them again to the server, which then drops the connection; here the client
gets a problem document and keeps its connection.
"""

import re
from typing import Final

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.errors import InternalError
from app.api.problems import kind_of, problem_response
from app.errors import TrainshedError
from app.ids import new_id

REQUEST_ID: Final = "trainshed.request_id"
_ACCEPTED_ID: Final = re.compile(rb"[A-Za-z0-9._-]{1,64}")
# What an answer gets unless its route chose otherwise.
_DEFAULT_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)

log = structlog.get_logger("trainshed.api")


def request_id_of(scope: Scope) -> str:
    return str(scope.get(REQUEST_ID, ""))


class RequestContext:
    """Pure ASGI; must wrap everything else."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope[REQUEST_ID] = request_id
        answer = _Answer(send, request_id)
        with structlog.contextvars.bound_contextvars(request_id=request_id):
            try:
                await self.app(scope, receive, answer.send)
            except ClientDisconnect:
                log.debug("client left before its request was read", path=scope["path"])
            except Exception as error:  # noqa: BLE001 - the last place where an error can still become an answer
                await self._answer_error(error, scope, receive, answer)

    @staticmethod
    async def _answer_error(error: Exception, scope: Scope, receive: Receive, answer: "_Answer") -> None:
        known = error if isinstance(error, TrainshedError) else InternalError()
        if kind_of(known)[0] == "internal":
            log.error("request failed", method=scope["method"], path=scope["path"], exc_info=error)
        if answer.started:
            # Too late to say anything; returning without the end of the body makes the server cut the connection.
            log.warning("answer was cut off", method=scope["method"], path=scope["path"])
            return
        await problem_response(known, request_id_of(scope))(scope, receive, answer.send)


class _Answer:
    """Adds the headers on the way out, and knows whether the answer has begun."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id.encode()
        self.started = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started = True
            headers = list(message.get("headers", ()))
            present = {name for name, _ in headers}
            headers.append((b"x-request-id", self._request_id))
            headers.extend(header for header in _DEFAULT_HEADERS if header[0] not in present)
            message = {**message, "headers": headers}
        await self._send(message)


def _request_id(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _ACCEPTED_ID.fullmatch(value):
            return bytes(value).decode()
    return new_id("req")
