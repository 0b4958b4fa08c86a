"""A real server in a thread, and a client that reads an event stream from it."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
from fastapi import FastAPI

from app.main import Server, listen, server_of, url_of
from app.settings import Settings

_PATIENCE_S = 20.0


@contextmanager
def serving(app: FastAPI, settings: Settings) -> Iterator[str]:
    """The address of the application behind uvicorn; on the way out it is stopped as SIGTERM does."""
    with listen("127.0.0.1", 0) as listening:
        server = server_of(app, settings.effective_run_dir)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="uvicorn")
        thread.start()
        try:
            wait_until(lambda: server.started or not thread.is_alive())
            assert server.started
            yield url_of(listening)
        finally:
            stop(server)
            thread.join(_PATIENCE_S)
            assert not thread.is_alive(), "the server did not end"


def stop(server: Server) -> None:
    server.handle_exit(15, None)


def wait_until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + _PATIENCE_S
    while not holds():
        assert time.monotonic() < end, "it did not come to be in time"
        time.sleep(0.005)


@dataclass(frozen=True)
class Event:
    """One event of a stream."""

    id: str
    event: str
    data: dict[str, Any]


@dataclass(frozen=True)
class Stream:
    """An open answer, whose events are read one by one."""

    response: httpx.Response

    def __iter__(self) -> Iterator[Event]:
        fields: dict[str, str] = {}
        for line in self.response.iter_lines():
            if line == "" and "data" in fields:
                yield Event(fields.get("id", ""), fields.get("event", "message"), orjson.loads(fields["data"]))
                fields = {}
            elif line == "":
                fields = {}
            elif not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value


@contextmanager
def open_events(url: str, job_id: str, key: str, last_id: str | None = None, **params: str) -> Iterator[Stream]:
    """The event stream of a job, from `Last-Event-ID` on."""
    headers = {"Authorization": f"Bearer {key}", "Accept": "text/event-stream"}
    if last_id is not None:
        headers["Last-Event-ID"] = last_id
    path = f"{url}/v1/jobs/{job_id}/events"
    with httpx.Client(timeout=_PATIENCE_S) as client, client.stream("GET", path, headers=headers, params=params) as got:
        yield Stream(got)
