"""The outermost middlewares: request ids, headers, hosts, limits, and faults that nobody foresaw."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest
import structlog
from httpx import ASGITransport

from app.api.context import RequestContext
from app.api.hosts import AllowedHosts
from app.api.limits import BodyLimits
from app.errors import NotFound
from app.ids import pattern
from tests.api.client import ONE_DATABASE, Api, problem

Asgi = Callable[..., Any]


def answered(app: Asgi, **request: Any) -> httpx.Response:
    """What a bare application answers to one request, without any of our routes."""

    async def send() -> httpx.Response:
        transport = ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            return await client.request(**({"method": "GET", "url": "/"} | request))

    return asyncio.run(send())


async def hello(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": b"hello"})


class Failing:
    """An application that raises, perhaps after it has begun to answer."""

    def __init__(self, error: Exception, *, late: bool = False) -> None:
        self.error = error
        self.late = late

    async def __call__(self, _scope: Any, _receive: Any, send: Any) -> None:
        if self.late:
            await send({"type": "http.response.start", "status": 200, "headers": []})
        raise self.error


class TestRequestId:
    def test_one_is_made(self) -> None:
        assert re.fullmatch(pattern("req"), answered(RequestContext(hello)).headers["x-request-id"])

    def test_the_caller_may_bring_one(self) -> None:
        answer = answered(RequestContext(hello), headers={"X-Request-Id": "trace-42.a_b"})
        assert answer.headers["x-request-id"] == "trace-42.a_b"

    @pytest.mark.parametrize("sent", ["a b", "x" * 65, "<script>", 'a"b', ""])
    def test_one_that_could_do_harm_in_a_log_is_replaced(self, sent: str) -> None:
        answer = answered(RequestContext(hello), headers={"X-Request-Id": sent})
        assert re.fullmatch(pattern("req"), answer.headers["x-request-id"])

    def test_it_is_in_what_is_logged_meanwhile(self) -> None:
        seen: list[Any] = []

        async def app(scope: Any, receive: Any, send: Any) -> None:
            seen.append(structlog.contextvars.get_contextvars()["request_id"])
            await hello(scope, receive, send)

        answered(RequestContext(app), headers={"X-Request-Id": "mine"})
        assert seen == ["mine"]
        assert "request_id" not in structlog.contextvars.get_contextvars()


class TestHeaders:
    def test_answers_are_safe_by_default(self) -> None:
        headers = answered(RequestContext(hello)).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
        assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'"

    def test_a_route_may_choose_otherwise(self) -> None:
        async def app(_scope: Any, _receive: Any, send: Any) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"public")]})
            await send({"type": "http.response.body", "body": b""})

        assert answered(RequestContext(app)).headers.get_list("cache-control") == ["public"]


class TestUnforeseenError:
    def test_the_client_gets_a_document_without_the_reason(self) -> None:
        with structlog.testing.capture_logs() as logs:
            answer = answered(RequestContext(Failing(ValueError("/secret/path SELECT *"))))
        document = problem(answer, 500, "internal")
        assert "secret" not in answer.text
        assert "Traceback" not in answer.text
        (line,) = logs
        assert (line["event"], line["path"]) == ("request failed", "/")
        assert "secret" in str(line["exc_info"])
        assert document["request_id"]

    def test_an_error_of_ours_keeps_its_kind(self) -> None:
        problem(answered(RequestContext(Failing(NotFound("job", "x")))), 404, "not_found")

    def test_after_the_answer_has_begun_it_is_cut_off_and_logged(self) -> None:
        sent: list[str] = []

        async def send(message: Any) -> None:
            sent.append(message["type"])

        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        with structlog.testing.capture_logs() as logs:
            asyncio.run(RequestContext(Failing(ValueError("late"), late=True))(scope, None, send))  # type: ignore[arg-type] # never read
        # Without the end of the body the server cuts the connection, so the client sees that something is missing.
        assert sent == ["http.response.start"]
        assert [line["event"] for line in logs] == ["request failed", "answer was cut off"]

    @ONE_DATABASE
    def test_one_inside_a_route_is_answered_too(self, api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(api.services, "queue")
        job = api.submit()
        with structlog.testing.capture_logs() as logs:
            problem(api.get(f"/v1/jobs/{job['id']}"), 500, "internal")
        assert isinstance(logs[0]["exc_info"], AttributeError)
        assert api.get("/v1/jobs").status_code == 200


class TestAllowedHosts:
    ALLOWED = ("127.0.0.1", "localhost", "[::1]", "Trainshed.example")

    def answer_to(self, host: str, allowed: tuple[str, ...] = ALLOWED) -> httpx.Response:
        return answered(RequestContext(AllowedHosts(hello, allowed)), headers={"Host": host})

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost:8000", "[::1]:80", "[::1]", "TRAINSHED.example:443"])
    def test_lets_its_names_pass_with_any_port(self, host: str) -> None:
        assert self.answer_to(host).status_code == 200

    # attacker.example pointing at 127.0.0.1 is how a web page reaches a local service (DNS rebinding).
    @pytest.mark.parametrize("host", ["attacker.example", "127.0.0.1.attacker.example", "", "localhost.", "[::2]:80"])
    def test_refuses_others(self, host: str) -> None:
        assert "TRAINSHED_ALLOWED_HOSTS" in problem(self.answer_to(host), 400, "host_not_allowed")["detail"]

    def test_a_star_allows_all(self) -> None:
        assert self.answer_to("anything.example", ("*",)).status_code == 200

    @ONE_DATABASE
    def test_stands_in_front_of_everything(self, api: Api) -> None:
        problem(api.get("/livez", headers={"Host": "attacker.example"}), 400, "host_not_allowed")


def chunks(*sizes: int) -> AsyncIterator[bytes]:
    async def produce() -> AsyncIterator[bytes]:
        for size in sizes:
            yield b"x" * size

    return produce()


class Reader:
    """An application that reads its body, and treats an error on the way as FastAPI does: as a 400."""

    def __init__(self, *, swallow: bool) -> None:
        self.swallow = swallow
        self.read = 0

    async def __call__(self, _scope: Any, receive: Any, send: Any) -> None:
        status = 200
        try:
            more = True
            while more:
                message = await receive()
                self.read += len(message.get("body", b""))
                more = message.get("more_body", False)
        except Exception:
            if not self.swallow:
                raise
            status = 400
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


JSON = {"Content-Type": "application/json"}


class TestBodyLimits:
    def answer_to(self, reader: Asgi, **request: Any) -> httpx.Response:
        limited = RequestContext(BodyLimits(reader, max_body_bytes=100, max_upload_bytes=1000, max_predict_bytes=500))
        return answered(limited, **({"method": "POST", "headers": JSON} | request))

    def test_a_body_of_the_limit_passes(self) -> None:
        assert self.answer_to(Reader(swallow=False), content=b"x" * 100).status_code == 200

    def test_an_announced_overrun_is_refused_unread(self) -> None:
        reader = Reader(swallow=False)
        answer = self.answer_to(reader, content=b"x" * 101)
        assert problem(answer, 413, "body_too_large")["limit"] == 100
        assert answer.headers["connection"] == "close"
        assert reader.read == 0

    @pytest.mark.parametrize("swallow", [True, False])
    def test_an_unannounced_overrun_is_refused_before_its_end(self, *, swallow: bool) -> None:
        reader = Reader(swallow=swallow)
        answer = self.answer_to(reader, content=chunks(60, 60, 60, 60))
        problem(answer, 413, "body_too_large")
        assert reader.read == 60

    def test_chunks_within_the_limit_pass(self) -> None:
        reader = Reader(swallow=False)
        assert self.answer_to(reader, content=chunks(50, 50)).status_code == 200
        assert reader.read == 100

    def test_an_upload_has_its_own_limit_and_types(self) -> None:
        reader = Reader(swallow=False)
        upload = {"url": "/v1/datasets", "headers": {"Content-Type": "text/csv"}}
        assert self.answer_to(reader, content=b"x" * 1000, **upload).status_code == 200
        too_much = 1000 + 64 * 1024 + 1
        problem(self.answer_to(reader, content=b"x" * too_much, **upload), 413, "body_too_large")
        picture = {"url": "/v1/datasets", "headers": {"Content-Type": "image/png"}}
        problem(self.answer_to(reader, content=b"{}", **picture), 415, "unsupported_media_type")

    def test_rows_to_predict_have_their_own_too(self) -> None:
        rows = {"url": "/v1/jobs/job_x/predict", "headers": {"Content-Type": "text/csv"}}
        assert self.answer_to(Reader(swallow=False), content=b"x" * 500, **rows).status_code == 200
        assert problem(self.answer_to(Reader(swallow=False), content=b"x" * 501, **rows), 413, "body_too_large")
        for url in ("/v1/jobs/job_x/predict/", "/v1/jobs/predict", "/v1/jobs/a/b/predict", "/v1/jobs/job_x/exports"):
            problem(
                self.answer_to(Reader(swallow=False), content=b"x", **rows | {"url": url}),
                415,
                "unsupported_media_type",
            )

    def test_no_body_needs_no_type(self) -> None:
        assert self.answer_to(Reader(swallow=False), headers={}).status_code == 200

    def test_a_get_with_a_body_is_held_to_the_same(self) -> None:
        problem(self.answer_to(Reader(swallow=False), method="GET", content=b"x" * 101), 413, "body_too_large")

    @ONE_DATABASE
    def test_the_application_answers_413_for_a_large_spec(self, api: Api) -> None:
        problem(api.post("/v1/jobs", json={"name": "x" * 20_000}), 413, "body_too_large")


def test_asgi_lifespan_passes_through() -> None:
    seen: list[str] = []

    async def app(scope: Any, _receive: Any, _send: Any) -> None:
        seen.append(scope["type"])

    stack = RequestContext(AllowedHosts(BodyLimits(app, 1, 1, 1), ("x",)))
    asyncio.run(stack({"type": "lifespan"}, None, None))  # type: ignore[arg-type] # nobody may touch them
    assert seen == ["lifespan"]
