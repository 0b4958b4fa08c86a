"""The event hub: one reader per followed job and process, whose rows every follower of that job shares.

The database is the truth; a ring only says that looking is worth while. A follower that is behind what the shared tail
still holds reads pages of its own, so a slow one costs nobody anything, and no position is ever skipped or repeated.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Final

import anyio
import orjson
import structlog
from anyio.to_thread import run_sync

from app.db import Database
from app.errors import TrainshedError
from app.jobs import journal
from app.jobs.journal import JournalEvent
from app.jobs.states import FINAL, JobState

PAGE: Final = 200
# A page of a chatty log would else hold 12 MB twice, for each follower that is slow to take it.
_PAGE_BYTES: Final = 256 * 1024
_FIRST_ROWS: Final = 8
_KEPT_FRAMES: Final = 1000
_KEPT_BYTES: Final = 2 * 1024 * 1024
_READERS: Final = 8

log = structlog.get_logger("trainshed.api")


@dataclass(frozen=True, slots=True)
class Frame:
    """One event, ready to be sent; `last` when nothing can follow it."""

    seq: int
    event: JournalEvent
    sse: bytes
    last: bool


def frame(event: JournalEvent) -> Frame:
    sse = b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), journal.event_json(event))
    return Frame(event.seq, event, sse, _is_last(event))


def _is_last(event: JournalEvent) -> bool:
    return event.kind == "state" and JobState(orjson.loads(event.text)["state"]) in FINAL


class Tail:
    """The newest events of one job. `floor` is the position it covers from; None until somebody has caught up."""

    def __init__(self) -> None:
        self.followers = 0
        self.floor: int | None = None
        self.position = 0
        self.wake = asyncio.Event()
        self._frames: deque[Frame] = deque()
        self._bytes = 0
        self._changed = asyncio.Event()
        self.reader: asyncio.Task[None] | None = None

    def start(self, position: int) -> None:
        self.floor = self.position = position

    def after(self, seq: int) -> list[Frame] | None:
        """What is newer than `seq`; None when this tail cannot say, and the follower must read for itself."""
        if self.floor is None or seq < self.floor:
            return None
        return [found for found in self._frames if found.seq > seq] if seq < self.position else []

    def add(self, frames: list[Frame]) -> None:
        for new in frames:
            self._frames.append(new)
            self._bytes += len(new.sse)
        self.position = frames[-1].seq
        while len(self._frames) > _KEPT_FRAMES or (self._bytes > _KEPT_BYTES and len(self._frames) > 1):
            gone = self._frames.popleft()
            self._bytes -= len(gone.sse)
            self.floor = gone.seq
        self.notify()

    def notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait for news; False when none came in time."""
        changed = self._changed
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await changed.wait()
        return changed.is_set()


@dataclass(frozen=True)
class Pace:
    """Seconds: between looks without a ring, and between the empty answers that let a follower do other things."""

    poll_s: float = 1.0
    tick_s: float = 1.0


class Hub:
    """All followers of this process. Everything but `ring_from_thread` belongs to the event loop's thread."""

    def __init__(self, database: Database, pace: Pace | None = None) -> None:
        self._database = database
        self.pace = pace or Pace()
        self._tails: dict[str, Tail] = {}
        self._limiter = anyio.CapacityLimiter(_READERS)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopped = threading.Event()

    @property
    def followers(self) -> int:
        return sum(tail.followers for tail in self._tails.values())

    def start(self) -> None:
        """Remember the running loop, into which rings from other threads are handed."""
        self._loop = asyncio.get_running_loop()

    def ring_from_thread(self, job_id: str | None) -> None:
        """Something was written for the job; None = perhaps for every job."""
        self._hand_over(lambda: self.ring(job_id))

    def stop_from_signal(self) -> None:
        """End every stream, so that the server can leave; safe in a signal handler."""
        self._hand_over(self.stop)

    def _hand_over(self, call: Callable[[], None]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)

    def ring(self, job_id: str | None) -> None:
        for tail in list(self._tails.values()) if job_id is None else [self._tails.get(job_id)]:
            if tail is not None:
                tail.wake.set()

    def stop(self) -> None:
        self._stopped.set()
        for tail in self._tails.values():
            tail.notify()

    async def follow(self, job_id: str, after: int) -> AsyncIterator[list[Frame]]:
        """Everything after `after`, then what comes, in order, to the last event; an empty list when it is quiet."""
        tail = self._tails.setdefault(job_id, Tail())
        tail.followers += 1
        try:
            while not self._stopped.is_set():
                frames = tail.after(after)
                if frames is None:
                    frames, at_end = await self._read(job_id, after)
                    if at_end:
                        self._start(job_id, tail, frames[-1].seq if frames else after)
                if not frames:
                    if self._stopped.is_set():  # it may have come during the read
                        return
                    if not await tail.wait(self.pace.tick_s):
                        yield []
                    continue
                after = frames[-1].seq
                yield frames
                if frames[-1].last:
                    return
        finally:
            self._leave(job_id, tail)

    def _start(self, job_id: str, tail: Tail, position: int) -> None:
        if tail.floor is None:
            tail.start(position)
            tail.reader = asyncio.create_task(self._keep_reading(job_id, tail), name=f"tail {job_id}")

    def _leave(self, job_id: str, tail: Tail) -> None:
        tail.followers -= 1
        if tail.followers == 0:
            self._tails.pop(job_id, None)
            if tail.reader is not None:
                tail.reader.cancel()

    async def _keep_reading(self, job_id: str, tail: Tail) -> None:
        while True:
            # Cleared before the read: a ring during it must lead to another one.
            tail.wake.clear()
            frames: list[Frame] = []
            try:
                frames, _ = await self._read(job_id, tail.position)
            except TrainshedError as error:
                log.warning("events cannot be read now", job_id=job_id, code=error.code)
            if frames:
                tail.add(frames)
                if frames[-1].last:
                    return
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.pace.poll_s):
                    await tail.wake.wait()

    async def _read(self, job_id: str, after: int) -> tuple[list[Frame], bool]:
        return await run_sync(self._page, job_id, after, limiter=self._limiter)

    def _page(self, job_id: str, after: int) -> tuple[list[Frame], bool]:
        """What follows `after`, up to `PAGE` events or some bytes more than `_PAGE_BYTES`; and whether that is all."""
        frames: list[Frame] = []
        size, rows = 0, _FIRST_ROWS
        with self._database.read() as session:
            while rows > 0:
                found = [frame(event) for event in journal.read(session, job_id, after, rows)]
                frames += found
                if len(found) < rows:
                    return frames, True
                after = found[-1].seq
                size += sum(len(new.sse) for new in found)
                # As many more as fit, if they are as long as those that came.
                rows = min(PAGE - len(frames), (_PAGE_BYTES - size) * len(frames) // size)
        return frames, False
