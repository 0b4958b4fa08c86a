"""Requests that wait for a worker's answer: woken by the doorbell, and by looking each second when nobody rings."""

import asyncio
import contextlib
from collections import defaultdict
from typing import Final

from anyio.to_thread import run_sync

from app.db import Database
from app.predictions.models import ModelTask
from app.predictions.states import OVER
from app.predictions.tasks import get_task

_POLL_S: Final = 1.0


class Desk:
    """All waiting requests of this process. Everything but `ring_from_thread` belongs to the event loop's thread."""

    def __init__(self, database: Database, poll_s: float = _POLL_S) -> None:
        self._database = database
        self._poll_s = poll_s
        self._waiting: defaultdict[str, set[asyncio.Event]] = defaultdict(set)
        self._loop: asyncio.AbstractEventLoop | None = None

    def start(self) -> None:
        """Remember the running loop, into which rings from other threads are handed."""
        self._loop = asyncio.get_running_loop()

    def ring_from_thread(self, task_id: str | None) -> None:
        """The task has ended; None = perhaps any."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._ring, task_id)

    async def wait(self, project_id: str, task_id: str, timeout_s: float) -> ModelTask:
        """The task once it is over, or as it stands when the time is up.

        Raises:
            NotFound: there is none with this id in this project (any more).
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout_s
        rung = asyncio.Event()
        self._waiting[task_id].add(rung)
        try:
            while True:
                # Cleared before the look: a ring during it must lead to another one.
                rung.clear()
                task = await run_sync(self._read, project_id, task_id)
                left = until - loop.time()
                if task.state in OVER or left <= 0:
                    return task
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, self._poll_s)):
                        await rung.wait()
        finally:
            self._leave(task_id, rung)

    def _ring(self, task_id: str | None) -> None:
        for rung in self._waiting.get(task_id, ()) if task_id is not None else set().union(*self._waiting.values()):
            rung.set()

    def _leave(self, task_id: str, rung: asyncio.Event) -> None:
        self._waiting[task_id].discard(rung)
        if not self._waiting[task_id]:
            del self._waiting[task_id]

    def _read(self, project_id: str, task_id: str) -> ModelTask:
        with self._database.read() as session:
            return get_task(session, project_id, task_id)
