"""One plain HTTP client for both sides, so that neither pays for a heavier library."""

import http.client
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit


@dataclass
class Client:
    """A keep-alive connection to one server; not shared between threads."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        self._connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)

    def call(self, method: str, path: str, body: object | None = None) -> Any:  # noqa: ANN401 - decoded JSON
        """Send one request and decode its answer; anything but 2xx ends the benchmark."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        self._connection.request(method, path, body=data, headers=headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if not http.client.OK <= answer.status < http.client.MULTIPLE_CHOICES:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:500]!r}")
        return json.loads(text) if text else None

    def close(self) -> None:
        self._connection.close()


def rate(clients: int, seconds: float, connect: Callable[[], Client], request: Callable[[Client], object]) -> float:
    """Requests per second that `clients` threads get answered in about `seconds`, after one request each of warm-up."""
    counts = [0] * clients
    barrier = threading.Barrier(clients + 1)

    def work(index: int) -> None:
        client = connect()
        request(client)
        barrier.wait()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            request(client)
            counts[index] += 1
        client.close()

    threads = [threading.Thread(target=work, args=(index,)) for index in range(clients)]
    for thread in threads:
        thread.start()
    barrier.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - started)


def seconds_of(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
