"""A server in front of an S3 server that fails as a test asks: with a status, with silence, or in the middle."""

import contextlib
import http.client
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

Fault = Callable[["_Handler"], bool]
"""Answers a request in the real server's place and says True, or lets it pass."""

# What S3 answers with a refusal. Source: Amazon S3 API Reference, "Error responses".
REFUSAL = "<Error><Code>{code}</Code><Message>AKIDEXAMPLE and more that nobody should log</Message></Error>"


@dataclass
class FaultyS3:
    """`faults` meet the next requests, one each, as long as there are any; `seen` are all requests."""

    url: str
    faults: list[Fault] = field(default_factory=list)
    seen: list[tuple[str, str]] = field(default_factory=list)

    def methods(self) -> list[str]:
        return [method for method, _ in self.seen]


def refusal(status: int, code: str) -> Fault:
    """An answer with an error, as S3 words it."""

    def fault(handler: "_Handler") -> bool:
        handler.answer(status, {}, b"" if handler.command == "HEAD" else REFUSAL.format(code=code).encode())
        return True

    return fault


def only(method: str, fault: Fault) -> Fault:
    """The fault for requests of this method, so that others between them do not use it up."""

    def chosen(handler: "_Handler") -> bool:
        if handler.command == method:
            return fault(handler)
        handler.faulty.faults.insert(0, chosen)
        return False

    return chosen


def let_pass(_: "_Handler") -> bool:
    """No fault."""
    return False


def hang_up(handler: "_Handler") -> bool:
    """End the connection without a word."""
    handler.close_connection = True
    return True


def no_s3(handler: "_Handler") -> bool:
    """Answer as a server of another kind does."""
    handler.answer(200, {"Content-Type": "text/plain"}, b"It works!")
    return True


def break_off(handler: "_Handler") -> bool:
    """Send the real answer's head, and half of its body."""
    status, headers, body = handler.ask()
    handler.head(status, headers, len(body))
    handler.wfile.write(body[: len(body) // 2])
    handler.close_connection = True
    return True


@contextlib.contextmanager
def faulty_s3(upstream: str, context: ssl.SSLContext | None = None) -> Iterator[FaultyS3]:
    """Such a server, on a free port of this host; with a context it speaks TLS."""
    server = _Server(("127.0.0.1", 0), _Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    server.upstream = urlsplit(upstream).netloc
    server.faulty = FaultyS3(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.faulty
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is what many tests want."""

    upstream: str
    faulty: FaultyS3


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 10
    server: _Server

    @property
    def faulty(self) -> FaultyS3:
        return self.server.faulty

    def handle_any(self) -> None:
        self.faulty.seen.append((self.command, self.path))
        with contextlib.suppress(ConnectionError):  # a client that has given up
            self.body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            if not (self.faulty.faults and self.faulty.faults.pop(0)(self)):
                self.answer(*self.ask())

    # The names that the library looks for.
    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any  # noqa: N815 - as above

    def ask(self) -> tuple[int, dict[str, str], bytes]:
        """The real server's answer."""
        connection = http.client.HTTPConnection(self.server.upstream, timeout=10)
        try:
            connection.request(self.command, self.path, self.body, dict(self.headers.items()))
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        length = headers.get("Content-Length", "0") if self.command == "HEAD" else len(body)
        self.head(status, headers, length)
        self.wfile.write(body)

    def head(self, status: int, headers: dict[str, str], length: int | str) -> None:
        self.send_response_only(status)
        own = ("content-length", "connection", "transfer-encoding")
        for name, value in headers.items():
            if name.lower() not in own:
                self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name it has in the library
        """Nobody reads it."""
