"""A started attempt, as a test sees it: wait for what it says, with a deadline, never for a time to pass."""

import json
import os
import select
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.spec import Column, EffectiveSpec, TableSchema, parse_job, resolve
from workers.launch import Ended, Event, LaunchRequest, Running, StartedEvent
from workers.processes import await_end, open_process, read_stat
from workers.protocol import Assignment, DataSource, Device

LIMIT_S = 30.0
FAR_NS = 3_600_000_000_000
ROOT = Path(__file__).parents[3]


def boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def spec(framework: str = "torch") -> EffectiveSpec:
    columns = [
        Column(name="length", kind="number", missing=0, distinct=90, minimum=0.0, maximum=1.0),
        Column(name="kind", kind="integer", missing=0, distinct=2, labels=["0", "1"], minimum=0.0, maximum=1.0),
    ]
    table = TableSchema(
        source_kind="builtin", rows=100, columns=columns, default_target="kind", default_task="classification"
    )
    return resolve(
        parse_job({"framework": framework, "model": "linear", "data": "digits", "device_count": 1}), table, "cpu"
    )


def simulated(identity: str) -> Device:
    return Device(id=identity, kind="simulated", name="Simulated", pci_bus_id="00000000:01:00.0", memory_bytes=8 << 30)


def assignment(
    work_dir: Path, devices: list[Device], *, framework: str = "torch", job: str = "job_1", seed: int = 0
) -> Assignment:
    return Assignment(
        job_id=job,
        attempt=1,
        spec=spec(framework),
        table=DataSource(builtin="digits"),
        devices=devices,
        threads=1,
        work_dir=str(work_dir),
        seed=seed,
    )


class Attempt:
    """Collects events, lines of the message socket, and output."""

    def __init__(self, run: Running, request: LaunchRequest, limit_s: float = LIMIT_S) -> None:
        self.run = run
        self.request = request
        self._limit_s = limit_s
        self.events: list[Event] = []
        self.output = b""
        self._messages = b""
        self._open = {run.control.fileno(), run.messages.fileno(), run.output}

    def line(self) -> dict[str, Any]:
        """The next line that the entry point says."""
        self._pump(lambda: b"\n" in self._messages)
        line, _, self._messages = self._messages.partition(b"\n")
        facts: dict[str, Any] = json.loads(line)
        return facts

    def written(self, text: bytes) -> None:
        """Wait until the output holds this text."""
        self._pump(lambda: text in self.output)

    def started(self) -> StartedEvent:
        self._pump(lambda: any(isinstance(event, StartedEvent) for event in self.events))
        return next(event for event in self.events if isinstance(event, StartedEvent))

    def last(self) -> Event:
        """The event behind which nothing comes."""
        self._pump(lambda: any(not isinstance(event, StartedEvent) for event in self.events))
        return self.events[-1]

    def ended(self) -> Ended:
        last = self.last()
        assert isinstance(last, Ended), last
        return last

    def all_output(self) -> bytes:
        """Everything written, to the end of the pipe."""
        self._pump(lambda: self.run.output not in self._open)
        return self.output

    def _pump(self, done: Callable[[], bool]) -> None:
        give_up = time.monotonic() + self._limit_s
        while not done():
            poll = select.poll()
            for descriptor in self._open:
                poll.register(descriptor, select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll(1000)}
            assert time.monotonic() < give_up, (self.events, self._messages, self.output)
            self._read(ready)

    def _read(self, ready: set[int]) -> None:
        if self.run.output in ready:
            data = os.read(self.run.output, 65536)
            self.output += data
            self._keep(self.run.output, more=bool(data))
        if self.run.messages.fileno() in ready:
            try:
                data = self.run.messages.recv(65536)
            except ConnectionResetError:
                data = b""
            self._messages += data
            self._keep(self.run.messages.fileno(), more=bool(data))
        if self.run.control.fileno() in ready:
            self.events += self.run.events()
            over = any(not isinstance(event, StartedEvent) for event in self.events)
            self._keep(self.run.control.fileno(), more=not over)

    def _keep(self, descriptor: int, *, more: bool) -> None:
        if not more:
            self._open.discard(descriptor)


class Watched:
    """A process that was alive when it was first looked at, and whose end can be waited for."""

    def __init__(self, pid: int) -> None:
        stat = read_stat(pid)
        assert stat is not None
        descriptor = open_process(pid, stat.start_time)
        assert descriptor is not None
        self.pid = pid
        self._descriptor = descriptor

    def gone(self) -> bool:
        """Wait for its end; False when it still lives after the limit."""
        return await_end(self._descriptor, int(LIMIT_S * 1000))

    def alive(self) -> bool:
        return not await_end(self._descriptor, 0)

    def close(self) -> None:
        os.close(self._descriptor)
