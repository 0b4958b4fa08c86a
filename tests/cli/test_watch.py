"""Why a queued job waits, asked beside the stream."""

import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

import pytest

from app.cli.edge import Edge
from app.cli.follow import JournalEntry
from app.cli.options import Session
from app.cli.view import JobView
from app.cli.watch import WhyWaiting
from tests.cli.fake_server import JOB, FakeServer, breaks, job, state

READ = f"GET /v1/jobs/{JOB}"
QUICK_S = 0.01


class Notes:
    """A display that keeps its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.came = threading.Semaphore(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def entry(self, entry: JournalEntry, view: JobView) -> None:
        pass

    def log(self, lines: Iterable[str]) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.came.release()


@pytest.fixture
def notes() -> Notes:
    return Notes()


def waiting(message: str) -> dict[str, object]:
    return job(waiting={"code": "x", "message": message, "position": 1})


def why(server: FakeServer, notes: Notes) -> WhyWaiting:
    return WhyWaiting(Session(server.client(), Edge(environ={}), as_json=False), JOB, notes, QUICK_S)


class TestWhyWaiting:
    def test_each_new_reason_is_noted_once(self, server: FakeServer, notes: Notes) -> None:
        server.on(READ, waiting("no worker online"), waiting("no worker online"), breaks, waiting("1 device, 0 free"))
        with why(server, notes) as asking:
            asking.entry(state(1, "queued", 0))
            assert notes.came.acquire(timeout=10)
            assert notes.came.acquire(timeout=10)
        assert notes.notes == ["queued: no worker online", "queued: 1 device, 0 free"]

    def test_a_job_that_has_left_the_queue_is_not_asked_about(self, server: FakeServer, notes: Notes) -> None:
        server.on(READ, waiting("no worker online"))
        with why(server, notes) as asking:
            asking.entry(state(1, "queued", 0))
            assert notes.came.acquire(timeout=10)
            asking.entry(state(2, "starting"))
            for thread in asking._threads:
                thread.join(timeout=10)
            asked = len(server.requests)
            assert not any(thread.is_alive() for thread in asking._threads)
        assert len(server.requests) == asked

    def test_one_that_comes_back_into_the_queue_is(self, server: FakeServer, notes: Notes) -> None:
        server.on(READ, waiting("first"))
        with why(server, notes) as asking:
            asking.entry(state(1, "queued", 0))
            assert notes.came.acquire(timeout=10)
            asking.entry(state(2, "starting"))
            server.on(READ, waiting("second"))
            asking.entry(state(3, "queued"))
            assert notes.came.acquire(timeout=10)
        assert notes.notes[-1] == "queued: second"

    def test_a_reason_cannot_rewrite_the_terminal(self, server: FakeServer, notes: Notes) -> None:
        server.on(READ, waiting("held by \x1b[2J"))
        with why(server, notes) as asking:
            asking.entry(state(1, "queued", 0))
            assert notes.came.acquire(timeout=10)
        assert notes.notes == ["queued: held by \ufffd[2J"]

    def test_without_a_queue_nobody_asks(self, server: FakeServer, notes: Notes) -> None:
        with why(server, notes) as asking:
            asking.entry(state(1, "running"))
        assert server.requests == []
