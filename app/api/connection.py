"""The connection under the requests: what may be sent before a request can be looked at, and what is no request."""

import asyncio
from http import HTTPStatus
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.api.errors import HeadTooLarge, MalformedHttp
from app.api.problems import problem_response
from app.errors import TrainshedError
from app.ids import new_id


class BoundedHead(HttpToolsProtocol):
    """Uvicorn's protocol with a bound, in bytes and in time, on the head of a request (its first line and headers).

    Without it a client needs no key to fill the memory: uvicorn keeps a header that does not end for as long as it
    grows, and waits for the end of a head for ever. What is no HTTP is answered as a problem document too.
    """

    MAX_HEAD_BYTES: ClassVar[int] = 64 * 1024
    PATIENCE_S: ClassVar[float] = 30.0

    def __init__(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401 - passed on as they are
        super().__init__(*arguments, **named)
        self._in_head = False
        self._head_bytes = 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # uvicorn's own way
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > self.MAX_HEAD_BYTES:
                self._refuse(HeadTooLarge(self.MAX_HEAD_BYTES))

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0
        self._wait_for_head()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's sentence; ours says more
        """Uvicorn's answer to what its parser refuses."""
        self._refuse(MalformedHttp())

    def _wait_for_head(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(self.PATIENCE_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _give_up(self) -> None:
        self._deadline = None
        if self._is_busy:  # it is the head of a next request
            self._wait_for_head()
        else:
            self.transport.close()

    @property
    def _in_answer(self) -> bool:
        """Whether bytes written now would end up inside another answer, or before one that is due."""
        return bool(self.pipeline) or (self._is_busy and self.cycle.response_started)

    @property
    def _is_busy(self) -> bool:
        return bool(self.cycle) and not self.cycle.response_complete  # no cycle before the first request

    def _refuse(self, error: TrainshedError) -> None:
        """Answer and hang up; while another answer is under way only hang up."""
        self._in_head = False
        self._stop_waiting()
        if not self._in_answer and not self.transport.is_closing():
            answer = problem_response(error, new_id("req"))
            answer.headers["Connection"] = "close"
            lines = [f"HTTP/1.1 {answer.status_code} {HTTPStatus(answer.status_code).phrase}".encode()]
            lines += [name + b": " + value for name, value in answer.raw_headers]
            self.transport.write(b"\r\n".join([*lines, b"", b""]) + bytes(answer.body))
        self.transport.close()
