"""The network's edge as the command line's tests have it: an httpx transport that answers from a table.

Answers have the shapes that app.api.views declares; tests/e2e runs the same commands against the real server.
"""

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import httpx
from rich.console import Console

from app.cli.client import Client
from app.cli.connection import Connection
from app.cli.edge import Edge
from app.cli.program import main

URL = "http://127.0.0.1:8000"
KEY = "ts_test"
JOB = "job_01k0000000000000000000000a"
OTHER_JOB = "job_01k0000000000000000000000b"
AT = "2026-01-31T12:00:00.000000Z"

Answer = httpx.Response | Callable[[httpx.Request], httpx.Response]


class FakeServer:
    """`answers` maps "METHOD /path" to answers that are given one after another, the last one for ever."""

    def __init__(self) -> None:
        self.answers: dict[str, list[Answer]] = {}
        self.requests: list[httpx.Request] = []

    def on(self, route: str, *answers: Answer | Mapping[str, Any]) -> None:
        self.answers[route] = [httpx.Response(200, json=a) if isinstance(a, Mapping) else a for a in answers]

    def handle(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        waiting = self.answers.get(f"{request.method} {request.url.path}")
        if waiting is None:
            return problem(404, "not_found", "There is no such thing in this project.")
        answer = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        # Each time a fresh copy: a response that was read once is used up.
        return answer(request) if callable(answer) else copy_of(answer)

    def asked(self, route: str) -> list[httpx.Request]:
        """The requests to one route, in order."""
        return [request for request in self.requests if f"{request.method} {request.url.path}" == route]

    def client(self, pauses: list[float] | None = None) -> Client:
        waited = [] if pauses is None else pauses
        return Client(Connection(URL, KEY), httpx.MockTransport(self.handle), waited.append)


def copy_of(answer: httpx.Response) -> httpx.Response:
    return httpx.Response(answer.status_code, headers=answer.headers, content=answer.content)


def refuses(request: httpx.Request) -> httpx.Response:
    """Nobody listens."""
    raise httpx.ConnectError("Connection refused", request=request)


def breaks(request: httpx.Request) -> httpx.Response:
    """The connection is lost before the answer."""
    raise httpx.ReadError("Connection reset by peer", request=request)


def problem(status: int, code: str, detail: str, **members: Any) -> httpx.Response:
    content = {"type": f"/docs/errors#{code}", "title": code, "status": status, "detail": detail, "code": code}
    return httpx.Response(
        status,
        json={**content, "request_id": "req_1", **members},
        headers={"Content-Type": "application/problem+json"},
    )


def listing(*items: Mapping[str, Any], next_after: str | None = None) -> dict[str, Any]:
    return {"object": "list", "data": list(items), "has_more": next_after is not None, "next_after": next_after}


def job(job_id: str = JOB, state: str = "queued", **members: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "id": job_id,
        "object": "job",
        "name": "",
        "framework": "torch",
        "state": state,
        "cause": None,
        "message": None,
        "effective_spec": {"model": {"type": "mlp"}, "data": {"source": "digits"}},
        "warnings": [],
        "device_count": 1,
        "device_type": "cpu",
        "progress": None,
        "metrics": {"last": None, "best": None},
        "attempt": 0,
        "owner": "ada",
        "run_s": 0.0,
        "created_at": AT,
        "finished_at": None,
    }
    return {**base, **members}


def state(seq: int, name: str, attempt: int = 1, **members: Any) -> dict[str, Any]:
    return {"seq": seq, "at": AT, "attempt": attempt, "kind": "state", "state": name, **members}


def metric(seq: int, epoch: int, loss: float | str, attempt: int = 1) -> dict[str, Any]:
    """A report after `epoch` of 4 epochs with 10 steps each."""
    step = epoch * 10
    progress = {"epoch": epoch, "epochs": 4, "step": step, "steps": 40, "fraction": step / 40}
    return {
        "seq": seq,
        "at": AT,
        "attempt": attempt,
        "kind": "metric",
        "points": {"loss": {"step": [step], "epoch": [epoch], "value": [loss]}},
        "progress": {**progress, "eta_s": 1.5, "samples_per_s": 12345.6},
    }


def log(seq: int, *lines: str) -> dict[str, Any]:
    return {"seq": seq, "at": AT, "attempt": 1, "kind": "log", "lines": list(lines), "stream": "output"}


def frames(entries: Iterable[Mapping[str, Any]]) -> bytes:
    """Journal entries as the server sends them."""
    sent = [f"id: {e['seq']}\nevent: {e['kind']}\ndata: {json.dumps(e)}\n\n" for e in entries]
    return "".join(["retry: 2000\n\n", *sent]).encode()


def stream(*entries: Mapping[str, Any], lost: bool = False) -> Answer:
    """An event stream with these entries; `lost`: the connection breaks after them, and ends in order otherwise."""

    def pieces(request: httpx.Request) -> Iterator[bytes]:
        yield frames(entries)
        if lost:
            raise httpx.ReadError("Connection reset by peer", request=request)

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=pieces(request), headers={"Content-Type": "text/event-stream"})

    return answer


class Became(Exception):
    """Instead of becoming another program."""


@dataclass
class Ran:
    """What one run of the program did."""

    code: int
    out: str
    err: str
    became: list[str] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


class Terminal(io.StringIO):
    """A person's own input."""

    def isatty(self) -> bool:
        return True


def _asked(err: io.StringIO, question: str, typed: str | None) -> str:
    err.write(question)
    assert typed is not None
    return typed


def run(
    server: FakeServer,
    home: Path,
    *arguments: str,
    environ: Mapping[str, str] | None = None,
    stdin: str = "",
    terminal: bool = False,
    typed: str | None = None,
) -> Ran:
    """Run `trainshed ARGUMENT…` against `server`; address and key come from the environment unless it is given.

    `typed` is what a person at a terminal answers when asked; without it nobody is there.
    """
    out, err = io.StringIO(), io.StringIO()
    ran = Ran(0, "", "")

    def become(command: Sequence[str], _environ: Mapping[str, str]) -> NoReturn:
        ran.became = list(command)
        raise Became

    given = {"TRAINSHED_URL": URL, "TRAINSHED_KEY": KEY} if environ is None else environ
    edge = Edge(
        environ={"TRAINSHED_HOME": str(home), **given},
        transport=httpx.MockTransport(server.handle),
        out=Console(file=out, width=200, highlight=False, markup=False, force_terminal=terminal),
        err=Console(file=err, width=200, highlight=False, markup=False),
        stdin=io.StringIO(stdin) if typed is None else Terminal(),
        ask_hidden=lambda question: _asked(err, question, typed),
        pause=ran.pauses.append,
        become=become,
    )
    try:
        main(arguments, edge)
    except SystemExit as leaving:
        ran.code = int(leaving.code or 0)
    except Became:
        pass
    ran.out, ran.err = out.getvalue(), err.getvalue()
    return ran
