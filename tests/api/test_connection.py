"""What happens before there is a request: heads that do not end, and bytes that are no HTTP."""

import json
import socket
from urllib.parse import urlsplit

import pytest

from app.api.connection import BoundedHead
from app.db import Database
from tests.api.client import ONE_DATABASE, Tenant
from tests.api.journals import Writer

PATIENCE_S = 20.0
START = b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n"


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    assert parts.hostname is not None
    return socket.create_connection((parts.hostname, parts.port or 0), timeout=PATIENCE_S)


def submit_in_chunks(tenant: Tenant) -> bytes:
    """The head of a submit whose body is to come."""
    return (
        "POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {tenant.user}\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode()


def all_of(connection: socket.socket) -> bytes:
    """Everything until the server hangs up."""
    received = b""
    while data := connection.recv(65536):
        received += data
    return received


def refusal(answer: bytes, status: int, code: str) -> None:
    """One problem document and nothing else."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(f"HTTP/1.1 {status} ".encode()), answer
    assert b"content-type: application/problem+json" in head
    assert b"connection: close" in head.lower()
    document = json.loads(body)
    assert (document["status"], document["code"]) == (status, code)


@ONE_DATABASE
class TestHead:
    @pytest.mark.parametrize("start", [START + b"X-Long: ", b"GET /livez?q="])
    def test_one_that_does_not_end_is_refused_when_it_has_too_many_bytes(self, url: str, start: bytes) -> None:
        with connect(url) as connection:
            connection.sendall(start)
            # Just enough: what the server has not read when it hangs up would cost the client its answer.
            sent, piece = len(start), b"a" * 1000
            while sent <= BoundedHead.MAX_HEAD_BYTES:
                connection.sendall(piece)
                sent += len(piece)
            refusal(all_of(connection), 431, "head_too_large")

    def test_one_with_long_headers_that_ends_is_fine(self, url: str) -> None:
        with connect(url) as connection:
            connection.sendall(START + b"X-Long: " + b"a" * 20_000 + b"\r\nConnection: close\r\n\r\n")
            assert all_of(connection).startswith(b"HTTP/1.1 200 OK\r\n")

    @pytest.mark.parametrize("sent", [b"", b"GET /livez", START])
    def test_one_that_does_not_come_is_not_waited_for(
        self, url: str, sent: bytes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(BoundedHead, "PATIENCE_S", 0.05)
        with connect(url) as connection:
            connection.sendall(sent)
            assert all_of(connection) == b""

    def test_a_kept_connection_takes_one_request_after_the_other(self, url: str) -> None:
        with connect(url) as connection:
            connection.sendall(2 * (START + b"\r\n") + START + b"Connection: close\r\n\r\n")
            assert all_of(connection).count(b"HTTP/1.1 200 OK\r\n") == 3


@ONE_DATABASE
class TestNotHttp:
    @pytest.mark.parametrize(
        "sent",
        [
            b"hello\r\n\r\n",
            b"GET /livez HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
            b"GET /\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
            b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n",
        ],
    )
    def test_is_refused_with_a_problem_document(self, url: str, sent: bytes) -> None:
        with connect(url) as connection:
            connection.sendall(sent)
            refusal(all_of(connection), 400, "malformed_http")

    def test_after_a_request_that_is_not_answered_yet_it_is_refused_too(self, url: str, tenant: Tenant) -> None:
        with connect(url) as connection:
            connection.sendall(submit_in_chunks(tenant) + b"no chunk\r\n")
            refusal(all_of(connection), 400, "malformed_http")

    def test_does_not_end_up_inside_another_answer(self, url: str, tenant: Tenant, database: Database) -> None:
        job_id = Writer(database, tenant.project_id).job_id
        start = f"GET /v1/jobs/{job_id}/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n"
        with connect(url) as connection:
            connection.sendall(f"{start}Authorization: Bearer {tenant.user}\r\n\r\n".encode())
            received = b""
            while b"retry: " not in received:
                received += connection.recv(65536)
            connection.sendall(b"no HTTP\r\n\r\n")
            assert b"HTTP/1.1" not in received.partition(b"\r\n")[2] + all_of(connection)
