"""Limits on bodies, in front of routing: size (413, before the body is read to its end) and content type (415)."""

import re
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.context import request_id_of
from app.api.errors import BodyTooLarge, UnsupportedMediaType
from app.api.problems import problem_response

JSON = ("application/json",)
TABLES = (
    "multipart/form-data",
    "text/csv",
    "text/tab-separated-values",
    "application/vnd.apache.parquet",
    "application/octet-stream",
)
ARCHIVES = ("multipart/form-data", "application/zip", "application/octet-stream")
ROWS = ("application/json", "text/csv")
UPLOAD_PATH = "/v1/datasets"
BUNDLE_PATH = "/v1/bundles"
# Boundaries and part headers of a multipart body, on top of the file itself.
_FRAMING_BYTES = 64 * 1024
_PREDICT_PATH = re.compile(r"/v1/jobs/[^/]+/predict")


@dataclass(frozen=True)
class BodyRule:
    limit: int
    types: tuple[str, ...]


class BodyLimits:
    """Pure ASGI.

    A body that announces its length is refused unread. One that does not (chunked) is counted; FastAPI turns an error
    raised while it reads into a 400, so the overrun is remembered here and its answer replaced on the way out.
    """

    def __init__(
        self,
        app: ASGIApp,
        max_body_bytes: int,
        max_upload_bytes: int,
        max_predict_bytes: int,
        max_bundle_bytes: int = 256 * 1024 * 1024,
    ) -> None:
        self.app = app
        self._json = BodyRule(max_body_bytes, JSON)
        self._upload = BodyRule(max_upload_bytes + _FRAMING_BYTES, (*TABLES, *JSON))
        self._archive = BodyRule(max_bundle_bytes + _FRAMING_BYTES, ARCHIVES)
        self._rows = BodyRule(max_predict_bytes, ROWS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        sent = headers.get(b"content-type", b"").decode("latin-1")
        rule = self._rule(scope["method"], scope["path"], sent)
        length = _announced(headers.get(b"content-length"))
        if length is not None and length > rule.limit:
            raise BodyTooLarge(rule.limit)
        if b"transfer-encoding" not in headers and not length:
            await self.app(scope, receive, send)
            return
        _check_type(sent, rule)
        if length is not None:
            await self.app(scope, receive, send)
            return
        await _Counted(rule.limit, scope, receive, send).run(self.app)

    def _rule(self, method: str, path: str, sent: str) -> BodyRule:
        if method == "POST" and path == UPLOAD_PATH:
            return self._json if content_type(sent) in JSON else self._upload
        if method == "POST" and path == BUNDLE_PATH:
            return self._archive
        return self._rows if method == "POST" and _PREDICT_PATH.fullmatch(path) else self._json


def _announced(header: bytes | None) -> int | None:
    return int(header) if header is not None and header.isdigit() else None


def content_type(sent: str) -> str:
    """What a header Content-Type names, without its parameters."""
    return sent.partition(";")[0].strip().lower()


def _check_type(sent: str, rule: BodyRule) -> None:
    if content_type(sent) not in rule.types:
        raise UnsupportedMediaType(sent, rule.types)


class _Counted:
    """One request whose body has no announced length."""

    def __init__(self, limit: int, scope: Scope, receive: Receive, send: Send) -> None:
        self._limit = limit
        self._scope = scope
        self._receive = receive
        self._send = send
        self._seen = 0
        self._started = False

    @property
    def _overrun(self) -> bool:
        return self._seen > self._limit

    async def run(self, app: ASGIApp) -> None:
        await app(self._scope, self._count, self._replace)

    async def _count(self) -> Message:
        if self._overrun:
            raise BodyTooLarge(self._limit)
        message = await self._receive()
        self._seen += len(message.get("body", b""))
        if self._overrun:
            raise BodyTooLarge(self._limit)
        return message

    async def _replace(self, message: Message) -> None:
        if not self._overrun or self._started:
            self._started = True
            await self._send(message)
            return
        if message["type"] == "http.response.start":
            answer = problem_response(BodyTooLarge(self._limit), request_id_of(self._scope))
            await answer(self._scope, self._receive, self._send)
