"""A job's metrics as series, or as a table that is sent while it is written."""

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final, Literal

from fastapi import Query, Response
from starlette.responses import StreamingResponse

from app.api.bodies import json_response
from app.api.filters import JobId
from app.api.routing import api_router
from app.api.services import PrincipalDep, ServicesDep
from app.api.views import ListView, SeriesView
from app.jobs.metrics import Series, series
from app.jobs.points import Point, cut_of, points
from app.jobs.repository import get_job

router = api_router(prefix="/v1/jobs/{job_id}", tag="Jobs")

_POINTS: Final = 1000


@router.get(
    "/metrics",
    summary="Read a job's metrics",
    responses={200: {"model": ListView[SeriesView], "content": {"text/csv": {"schema": {"type": "string"}}}}},
)
def read_metrics(
    job_id: JobId,
    services: ServicesDep,
    principal: PrincipalDep,
    names: Annotated[str | None, Query(description="Names, with commas between; nothing: all.")] = None,
    max_points: Annotated[
        int | None,
        Query(ge=2, le=100_000, description="Per series; extremes are kept. Nothing: 1000, and all of them in CSV."),
    ] = None,
    format: Annotated[Literal["json", "csv"], Query()] = "json",  # noqa: A002 - the parameter's name on the wire
) -> Response:
    """Series by name. A later attempt hides the points that it repeats. `NaN` and infinities are strings.

    CSV has one line a point: name, step, epoch, value, attempt; in the order in which they were reported, or by name
    when `max_points` is given.
    """
    wanted = None if names is None else frozenset(name.strip() for name in names.split(","))
    with services.database.read() as session:
        get_job(session, principal.project_id, job_id)
        if format == "csv" and max_points is None:
            return _download(job_id, points(services.database, job_id, cut_of(session, job_id), wanted))
        found = series(session, job_id, wanted, max_points or _POINTS)
    if format == "csv":
        return _download(job_id, (_rows(name, thinned) for name, thinned in found.items()))
    data = [{"object": "series", "name": name, **vars(thinned)} for name, thinned in found.items()]
    return json_response({"object": "list", "data": data, "has_more": False, "next_after": None})


def _rows(name: str, found: Series) -> list[Point]:
    columns = zip(found.step, found.epoch, found.value, found.attempt, strict=True)
    return [Point(name, *row) for row in columns]


def _download(job_id: str, pages: Iterable[Sequence[Point]]) -> Response:
    disposition = {"Content-Disposition": f'attachment; filename="{job_id}-metrics.csv"'}
    return StreamingResponse(_table(pages), media_type="text/csv", headers=disposition)


def _table(pages: Iterable[Sequence[Point]]) -> Iterator[str]:
    """The lines, a chunk for each page, as RFC 4180 has them: CRLF at the end of each, quotes where they are needed."""
    yield _lines([Point._fields])
    for page in pages:
        yield _lines(page)


def _lines(rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()
