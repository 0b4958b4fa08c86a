"""The client: what it sends, and what each kind of failure becomes."""

import httpx
import pytest

from app.cli.client import Client
from app.cli.connection import Connection
from app.cli.errors import NO_SERVER, REFUSED, NotTrainshed, Refused, ServerFailed, Unreachable
from tests.cli.fake_server import KEY, URL, FakeServer, breaks, job, listing, problem, refuses, stream


class TestRequests:
    def test_the_key_goes_along(self, server: FakeServer) -> None:
        server.on("GET /v1/devices", listing())
        with server.client() as client:
            client.get("/v1/devices")
        assert server.requests[0].headers["Authorization"] == f"Bearer {KEY}"

    def test_parameters_that_are_none_are_left_out(self, server: FakeServer) -> None:
        server.on("GET /v1/jobs", listing())
        with server.client() as client:
            client.get("/v1/jobs", {"state": ["queued", "running"], "tag": None})
        assert str(server.requests[0].url) == f"{URL}/v1/jobs?state=queued&state=running"

    def test_a_body_is_sent_as_json_and_an_empty_one_has_no_type(self, server: FakeServer) -> None:
        server.on("POST /v1/jobs", job())
        server.on("POST /v1/jobs/x/cancel", job())
        with server.client() as client:
            client.post("/v1/jobs", b"{}", key="k")
            client.post("/v1/jobs/x/cancel")
        assert server.requests[0].headers["Content-Type"] == "application/json"
        assert "Content-Type" not in server.requests[1].headers

    @pytest.mark.parametrize(("url", "trusted"), [("http://127.0.0.1:1", False), ("https://trainshed.example", True)])
    def test_a_proxy_of_the_environment_is_not_asked_for_a_server_here(self, url: str, *, trusted: bool) -> None:
        with Client(Connection(url, KEY), httpx.MockTransport(refuses), lambda _seconds: None) as client:
            assert client._http.trust_env is trusted


class TestPages:
    def test_pages_are_read_until_there_are_enough(self, server: FakeServer) -> None:
        first = listing(*[job(f"j{number}") for number in range(200)], next_after="j199")
        server.on("GET /v1/jobs", first, listing(job("j200"), job("j201"), next_after="j201"))
        with server.client() as client:
            page = client.pages("/v1/jobs", 202, {"q": "x"})
        assert len(page["data"]) == 202
        assert page["has_more"] is True
        queries = [dict(request.url.params) for request in server.requests]
        assert queries == [{"q": "x", "limit": "200"}, {"q": "x", "limit": "2", "after": "j199"}]

    def test_the_last_page_ends_it(self, server: FakeServer) -> None:
        server.on("GET /v1/jobs", listing(job("a"), next_after="a"), listing(job("b")))
        with server.client() as client:
            page = client.pages("/v1/jobs", 50)
        assert [item["id"] for item in page["data"]] == ["a", "b"]
        assert page["has_more"] is False


class TestFailures:
    def test_a_problem_document_is_a_refusal(self, server: FakeServer) -> None:
        server.on("GET /v1/jobs/x", problem(404, "not_found", "There is no job 'x' in this project."))
        with server.client() as client, pytest.raises(Refused, match="no job 'x'") as caught:
            client.get("/v1/jobs/x")
        assert caught.value.exit_code == REFUSED
        assert caught.value.document["code"] == "not_found"

    def test_a_failure_of_the_server_is_told_apart_and_names_its_request(self, server: FakeServer) -> None:
        server.on("GET /v1/jobs", problem(503, "database_unavailable", "The database does not answer."))
        with server.client() as client, pytest.raises(ServerFailed) as caught:
            client.get("/v1/jobs")
        assert caught.value.exit_code == NO_SERVER
        assert caught.value.lines == ["Request id: req_1"]

    @pytest.mark.parametrize(
        "answer",
        [
            httpx.Response(502, text="<html>Bad gateway</html>"),
            httpx.Response(404, json={"message": "no route"}),
            httpx.Response(403, json=["no"]),
            httpx.Response(301, headers={"Location": "https://elsewhere"}),
            httpx.Response(200, text="<html>Welcome</html>"),
        ],
    )
    def test_what_no_trainshed_answers_is_another_program(self, server: FakeServer, answer: httpx.Response) -> None:
        server.on("GET /v1/jobs", answer)
        with server.client() as client, pytest.raises(NotTrainshed, match="Check --url"):
            client.get("/v1/jobs")

    def test_nobody_there_gives_a_hint_how_to_start_it(self, server: FakeServer) -> None:
        server.on("GET /v1/jobs", refuses)
        with server.client() as client, pytest.raises(Unreachable, match="Nothing answers at http") as caught:
            client.get("/v1/jobs")
        assert caught.value.exit_code == NO_SERVER
        assert "trainshed up" in caught.value.lines[0]

    def test_a_lost_stream_is_the_same(self, server: FakeServer) -> None:
        server.on("GET /v1/jobs/x/events", stream(lost=True))
        with server.client() as client, pytest.raises(Unreachable, match="was lost"):  # noqa: SIM117 - inner one raises
            with client.stream("/v1/jobs/x/events") as answer:
                list(answer.iter_bytes())

    def test_a_refused_stream_is_a_problem_document_too(self, server: FakeServer) -> None:
        server.on("GET /v1/jobs/x/events", problem(429, "too_many_streams", "Close one first."))
        with server.client() as client, pytest.raises(Refused, match="Close one"), client.stream("/v1/jobs/x/events"):
            pass


class TestRepeatedSubmit:
    def test_a_lost_answer_is_asked_for_again_with_the_same_key(self, server: FakeServer) -> None:
        pauses: list[float] = []
        server.on("POST /v1/jobs", breaks, breaks, job())
        with server.client(pauses) as client:
            assert client.post("/v1/jobs", b"{}", key="abc")["object"] == "job"
        assert [request.headers["Idempotency-Key"] for request in server.requests] == ["abc"] * 3
        assert pauses == [0.5, 1.0]

    def test_not_for_ever(self, server: FakeServer) -> None:
        server.on("POST /v1/jobs", breaks)
        with server.client() as client, pytest.raises(Unreachable):
            client.post("/v1/jobs", b"{}", key="abc")
        assert len(server.requests) == 3

    def test_nobody_there_is_said_at_once(self, server: FakeServer) -> None:
        server.on("POST /v1/jobs", refuses)
        with server.client() as client, pytest.raises(Unreachable):
            client.post("/v1/jobs", b"{}", key="abc")
        assert len(server.requests) == 1

    def test_without_a_key_nothing_is_repeated(self, server: FakeServer) -> None:
        server.on("POST /v1/jobs/x/cancel", breaks)
        with server.client() as client, pytest.raises(Unreachable):
            client.post("/v1/jobs/x/cancel")
        assert len(server.requests) == 1
