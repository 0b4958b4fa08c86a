"""What a job wrote while it ran: its events, as pages or as a stream."""

import re
from collections.abc import AsyncGenerator
from typing import Annotated, Final

from anyio.to_thread import run_sync
from fastapi import Header, Query, Request, Response

from app.accounts.service import Principal
from app.api.errors import InvalidEventId
from app.api.filters import JobId
from app.api.openapi import problems
from app.api.paging import Limit, next_link
from app.api.routing import api_router
from app.api.services import PrincipalDep, Services, ServicesDep
from app.api.sse import KEEP_ALIVE, QuietSince
from app.api.streams import open_stream, still_allowed
from app.api.views import EventPage
from app.jobs import journal
from app.jobs.repository import get_job

router = api_router(prefix="/v1/jobs/{job_id}", tag="Jobs")

_EVENT_STREAM: Final = "text/event-stream"
_QUIET_S: Final = 15.0
_NUMBER: Final = re.compile(r"[0-9]{1,18}")
_RETRY: Final = b"retry: 2000\n\n"
After = Annotated[str | None, Query(description="The number of the last event you have; 0 or nothing: from the start.")]
LastEventId = Annotated[str | None, Header(description="The same as `after`; sent by browsers that reconnect.")]


@router.get(
    "/events",
    summary="Read or follow a job's events",
    responses={
        200: {
            "model": EventPage,
            "description": "A page; with `Accept: text/event-stream` a stream that ends after the final state.",
            "content": {_EVENT_STREAM: {"schema": {"type": "string"}}},
        },
        204: {"description": "Of a stream: the job has ended, and nothing follows this position."},
        **problems("invalid_event_id", "too_many_streams"),
    },
)
async def read_events(
    job_id: JobId,
    request: Request,
    services: ServicesDep,
    principal: PrincipalDep,
    after: After = None,
    limit: Limit = 50,
    last_event_id: LastEventId = None,
) -> Response:
    """The journal of the job, numbered 1, 2, 3, … without gaps: states, metrics, log lines, notices.

    A stream replays everything after `Last-Event-ID` (or `after`) and goes on live. A number that no event has is
    answered 400, so that nothing is skipped unnoticed.
    """
    text = after if last_event_id is None else last_event_id
    wants_stream = _EVENT_STREAM in request.headers.get("accept", "")
    position, ended = await run_sync(_position, services, principal, job_id, text)
    if not wants_stream:
        return await run_sync(_event_page, request, services, job_id, position, limit)
    if ended:
        return Response(status_code=204)
    return open_stream(request, services, _events(request, services, job_id, position), _EVENT_STREAM)


def _position(services: Services, principal: Principal, job_id: str, text: str | None) -> tuple[int, bool]:
    """The number to go on from, and whether nothing will ever follow it.

    Raises:
        NotFound: no such job in this project.
        InvalidEventId: the text is not the number of an event of this job.
    """
    with services.database.read() as session:
        get_job(session, principal.project_id, job_id)
        last, closed = journal.head(session, job_id)
    if text is None or text == "":
        return 0, False
    position = int(text) if _NUMBER.fullmatch(text) else -1
    if not 0 <= position <= last:
        raise InvalidEventId(text, last)
    return position, closed and position == last


def _event_page(request: Request, services: Services, job_id: str, after: int, limit: int) -> Response:
    with services.database.read() as session:
        events = journal.read(session, job_id, after, limit + 1)
    shown = events[:limit]
    next_after = str(shown[-1].seq) if len(events) > limit else None
    data = b",".join(journal.event_json(event) for event in shown)
    more = b"true" if next_after else b"false"
    tail = b'],"has_more":%s,"next_after":%s}' % (more, (next_after or "null").encode())
    headers = {"Link": next_link(request, next_after)} if next_after else None
    return Response(b'{"object":"list","data":[' + data + tail, headers=headers, media_type="application/json")


async def _events(request: Request, services: Services, job_id: str, after: int) -> AsyncGenerator[bytes, None]:
    allowed = still_allowed(request, services)
    quiet = QuietSince(_QUIET_S)
    yield _RETRY
    async for frames in services.hub.follow(job_id, after):
        if not await allowed():
            return
        if frames:
            yield b"".join(found.sse for found in frames)
            quiet.sent()
        elif quiet.too_long:
            yield KEEP_ALIVE
            quiet.sent()
