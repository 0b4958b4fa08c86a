"""Answers that stay open: an event stream, or the log as it grows."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager
from typing import Final

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.api.errors import TooManyStreams

KEEP_ALIVE: Final = b": keep-alive\n\n"
# Proxies must neither buffer nor compress nor store what is still being written.
HEADERS: Final = {"Cache-Control": "no-store, no-transform", "X-Accel-Buffering": "no"}


class OpenResponse(Response):
    """Sends `chunks` as they come, until they end, the client leaves, or it takes nothing for `patience_s`.

    A client that stops reading is cut off, since its buffers would grow without end; it resumes by the last id it has.
    """

    def __init__(
        self,
        chunks: AsyncGenerator[bytes, None],
        media_type: str,
        held: AbstractContextManager[None],
        patience_s: float = 30.0,
    ) -> None:
        super().__init__(media_type=media_type, headers=HEADERS)
        del self.headers["content-length"]
        self._chunks = chunks
        self._held = held
        self._patience_s = patience_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI's shape
        with self._held:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            async with anyio.create_task_group() as group:
                group.start_soon(_cancel_when_gone, receive, group.cancel_scope)
                await self._pump(send)
                group.cancel_scope.cancel()

    async def _pump(self, send: Send) -> None:
        async with aclosing(self._chunks) as chunks:
            try:
                # The first bytes tell a client at once that it is connected.
                async for chunk in chunks:
                    async with asyncio.timeout(self._patience_s):
                        await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except TimeoutError:
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _cancel_when_gone(receive: Receive, cancel_scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    cancel_scope.cancel()


class StillAllowed:
    """Whether a stream may go on: its key is asked again now and then, so that revoking it ends the stream too."""

    def __init__(self, ask: Callable[[], Awaitable[bool]], every_s: float = 1.0) -> None:
        self._ask = ask
        self._every_s = every_s
        self._asked = asyncio.get_running_loop().time()

    async def __call__(self) -> bool:
        now = asyncio.get_running_loop().time()
        if now - self._asked < self._every_s:
            return True
        self._asked = now
        return await self._ask()


class QuietSince:
    """Tells when nothing was sent for `seconds`, which is when an event stream needs a comment line."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._sent = asyncio.get_running_loop().time()

    def sent(self) -> None:
        self._sent = asyncio.get_running_loop().time()

    @property
    def too_long(self) -> bool:
        return asyncio.get_running_loop().time() - self._sent >= self._seconds


class StreamCounter:
    """How many streams each key holds in this process."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: Counter[str] = Counter()

    def check(self, key_id: str) -> None:
        if self._held[key_id] >= self._limit:
            raise TooManyStreams(self._limit)

    @contextmanager
    def held(self, key_id: str) -> Iterator[None]:
        self._held[key_id] += 1
        try:
            yield
        finally:
            self._held[key_id] -= 1
