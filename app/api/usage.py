"""Device-hours and energy of a project."""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from fastapi import Query, Response

from app.accounts.service import Role
from app.api.bodies import json_response
from app.api.errors import InvalidRequest, RequestProblem
from app.api.hold_views import UsageReport
from app.api.openapi import problems
from app.api.routing import api_router
from app.api.services import PrincipalDep, ServicesDep
from app.api.views import Moment
from app.clock import to_rfc3339
from app.usage.report import By, report

router = api_router(prefix="/v1/usage", tag="Fleet")

_DEFAULT: Final = timedelta(days=30)
_FIRST: Final = datetime(2000, 1, 1, tzinfo=UTC)
"""Before this nothing was used, and far before it there is no time thirty days earlier."""


@router.get("", summary="Report usage", responses={200: {"model": UsageReport}, **problems("invalid_request")})
def read_usage(
    services: ServicesDep,
    principal: PrincipalDep,
    since: Annotated[Moment | None, Query(description="RFC 3339. Default: 30 days before `until`.")] = None,
    until: Annotated[Moment | None, Query(description="RFC 3339. Default: now.")] = None,
    by: Annotated[By, Query(description="What the lines are.")] = "owner",
) -> Response:
    """Device-seconds and joules of jobs and holds in a span of time; what is still held counts until now.

    Your project's; with `by=project` an admin gets a line for each project.
    """
    with services.database.read() as session:
        now = services.database.now(session)
        end = until or now
        start = since or max(end, _FIRST) - _DEFAULT
        if start >= end:
            problem = "must be before 'until'."
            raise InvalidRequest([RequestProblem("/since", problem, to_rfc3339(max(end, _FIRST) - _DEFAULT), "query")])
        whole = by == "project" and principal.role is Role.ADMIN
        found = report(session, None if whole else principal.project_id, start, end, by, now)
    return json_response(
        {
            "object": "usage",
            "by": by,
            "since": to_rfc3339(start),
            "until": to_rfc3339(end),
            "data": [line.as_json() for line in found.lines],
            "total": found.total.as_json(),
        }
    )
