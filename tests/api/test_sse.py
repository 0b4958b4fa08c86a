"""Answers that stay open: how they end, and what they refuse to do for a client that does not read."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import nullcontext
from typing import Any

import pytest
from starlette.types import Message

from app.api.errors import TooManyStreams
from app.api.sse import OpenResponse, QuietSince, StillAllowed, StreamCounter

SCOPE: dict[str, Any] = {"type": "http", "method": "GET", "path": "/", "headers": []}


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(20):
            return await work

    return asyncio.run(bounded())


class Client:
    """The other end: it leaves when told, and may stop taking what is sent."""

    def __init__(self, *, stuck_at: bytes | None = None) -> None:
        self.sent: list[Message] = []
        self.left = asyncio.Event()
        self._stuck_at = stuck_at

    async def receive(self) -> Message:
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if self._stuck_at is not None and message.get("body") == self._stuck_at:
            await asyncio.Event().wait()
        self.sent.append(message)

    @property
    def bodies(self) -> list[tuple[bytes, bool]]:
        return [(m["body"], m["more_body"]) for m in self.sent if m["type"] == "http.response.body"]


class Chunks:
    """A source of chunks that tells whether it was closed."""

    def __init__(self, *chunks: bytes, then_wait: bool = False) -> None:
        self.closed = False
        self._chunks = chunks
        self._then_wait = then_wait

    async def __call__(self) -> AsyncGenerator[bytes, None]:
        try:
            for chunk in self._chunks:
                yield chunk
            if self._then_wait:
                await asyncio.Event().wait()
        finally:
            self.closed = True


def response(chunks: Chunks, patience_s: float = 20.0) -> OpenResponse:
    return OpenResponse(chunks(), "text/event-stream", nullcontext(), patience_s)


class TestOpenResponse:
    def test_sends_each_chunk_as_it_comes_and_then_the_end(self) -> None:
        async def scenario() -> Client:
            client = Client()
            await response(Chunks(b"a", b"b"))(SCOPE, client.receive, client.send)
            return client

        client = run(scenario())
        assert client.sent[0]["type"] == "http.response.start"
        assert client.bodies == [(b"a", True), (b"b", True), (b"", False)]

    def test_a_client_that_leaves_ends_it_at_once(self) -> None:
        async def scenario() -> tuple[Client, Chunks]:
            client, chunks = Client(), Chunks(b"a", then_wait=True)
            answering = asyncio.create_task(response(chunks)(SCOPE, client.receive, client.send))
            while not client.bodies:  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.001)
            client.left.set()
            await answering
            return client, chunks

        client, chunks = run(scenario())
        assert client.bodies == [(b"a", True)]
        assert chunks.closed

    def test_a_client_that_takes_nothing_is_cut_off(self) -> None:
        async def scenario() -> tuple[Client, Chunks]:
            client, chunks = Client(stuck_at=b"b"), Chunks(b"a", b"b", b"c")
            await response(chunks, patience_s=0.02)(SCOPE, client.receive, client.send)
            return client, chunks

        client, chunks = run(scenario())
        # No end of the body: the server then closes the connection, and the client resumes by the last id it has.
        assert client.bodies == [(b"a", True)]
        assert chunks.closed

    def test_a_fault_of_the_source_is_not_hidden(self) -> None:
        async def broken() -> AsyncGenerator[bytes, None]:
            yield b"a"
            raise ZeroDivisionError

        async def scenario() -> None:
            client = Client()
            await OpenResponse(broken(), "text/plain", nullcontext())(SCOPE, client.receive, client.send)

        with pytest.raises(ExceptionGroup) as caught:
            run(scenario())
        assert caught.group_contains(ZeroDivisionError)


class TestStreamCounter:
    def test_counts_each_key_by_itself_and_forgets_what_ended(self) -> None:
        counter = StreamCounter(2)
        with counter.held("a"), counter.held("a"):
            counter.check("b")
            with pytest.raises(TooManyStreams, match="already follows 2 streams"):
                counter.check("a")
        counter.check("a")

    def test_a_stream_that_fails_is_given_back_too(self) -> None:
        counter = StreamCounter(1)
        with pytest.raises(ZeroDivisionError), counter.held("a"):
            raise ZeroDivisionError
        counter.check("a")


class TestPace:
    def test_the_key_is_asked_only_now_and_then(self) -> None:
        async def scenario() -> list[int]:
            asked: list[int] = []

            async def ask() -> bool:
                asked.append(1)
                return False

            rarely = StillAllowed(ask, every_s=3600)
            assert await rarely()
            always = StillAllowed(ask, every_s=0)
            assert not await always()
            return asked

        assert run(scenario()) == [1]

    def test_quiet_is_counted_from_what_was_sent_last(self) -> None:
        async def scenario() -> tuple[bool, bool]:
            return QuietSince(0).too_long, QuietSince(3600).too_long

        assert run(scenario()) == (True, False)
