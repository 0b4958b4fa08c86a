"""The text log of a job: all of it, its end, or as it grows."""

from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass
from typing import Annotated, Final

from anyio.to_thread import run_sync
from fastapi import Query, Request, Response
from starlette.responses import StreamingResponse

from app.accounts.service import Principal
from app.api.filters import JobId
from app.api.openapi import problems
from app.api.routing import api_router
from app.api.services import PrincipalDep, Services, ServicesDep
from app.api.sse import HEADERS
from app.api.streams import open_stream, still_allowed
from app.jobs import journal
from app.jobs.logs import lines_of, read_log
from app.jobs.repository import get_job

router = api_router(prefix="/v1/jobs/{job_id}", tag="Jobs")

_TEXT: Final = "text/plain; charset=utf-8"
_PAGE: Final = 32  # events of up to 64 kB each


@dataclass(frozen=True)
class Start:
    """Where the log stands: the last number of the journal, whether it can grow, and its newest lines if wanted."""

    position: int
    ended: bool
    newest: list[str]


@router.get(
    "/logs",
    summary="Read or follow a job's log",
    response_class=StreamingResponse,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The trainer's output."},
        **problems("too_many_streams"),
    },
)
async def read_logs(
    job_id: JobId,
    request: Request,
    services: ServicesDep,
    principal: PrincipalDep,
    tail: Annotated[int | None, Query(ge=1, le=100_000, description="Only so many lines from the end.")] = None,
    follow: Annotated[bool, Query(description="Stay, and send lines as they come, until the job has ended.")] = False,  # noqa: FBT002 - a parameter on the wire
) -> Response:
    """The trainer's output as text: all of it, the last `tail` lines, or on and on with `follow`."""
    start = await run_sync(_start, services, principal, job_id, tail)
    if follow and not start.ended:
        return open_stream(request, services, _growing(request, services, job_id, start, whole=tail is None), _TEXT)
    if tail is not None:
        return Response(_text(start.newest), media_type=_TEXT)
    return StreamingResponse(_whole(services, job_id, start.position), media_type=_TEXT, headers=HEADERS)


def _start(services: Services, principal: Principal, job_id: str, tail: int | None) -> Start:
    with services.database.read() as session:
        get_job(session, principal.project_id, job_id)
        last, closed = journal.head(session, job_id)
        return Start(last, closed, [] if tail is None else read_log(session, job_id, tail))


async def _whole(services: Services, job_id: str, until: int) -> AsyncGenerator[bytes, None]:
    """Pages of the log, each read in a session of its own, so that a slow client holds no transaction open."""

    def read(after: int) -> list[journal.JournalEvent]:
        with services.database.read() as session:
            return journal.read(session, job_id, after, _PAGE, kind="log")

    after = 0
    while after < until and (events := await run_sync(read, after)):
        yield b"".join(_lines(event) for event in events if event.seq <= until)
        after = events[-1].seq


async def _growing(
    request: Request, services: Services, job_id: str, start: Start, *, whole: bool
) -> AsyncGenerator[bytes, None]:
    allowed = still_allowed(request, services)
    # Something at once, so that headers and the first bytes reach the client.
    yield _text(start.newest)
    async for frames in services.hub.follow(job_id, 0 if whole else start.position):
        if not await allowed():
            return
        text = b"".join(_lines(found.event) for found in frames if found.event.kind == "log")
        if text:
            yield text


def _lines(event: journal.JournalEvent) -> bytes:
    return _text(lines_of(event.text))


def _text(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
