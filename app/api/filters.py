"""Parameters that several routes take, and the filters of the list of jobs."""

from typing import Annotated, Final

from fastapi import Depends, Header, Path, Query

from app.api.errors import InvalidRequest, RequestProblem
from app.api.views import Moment
from app.ids import pattern
from app.jobs.repository import JobFilter
from app.jobs.states import JobState

_TIME: Final = "RFC 3339, for example `2030-01-31T00:00:00Z`."
JobId = Annotated[str, Path(pattern=pattern("job"), description="The job's id.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        pattern=r"^[\x21-\x7e]{1,255}$",
        description="For example a UUID; at most 255 visible characters. The same key and body get the first answer.",
    ),
]


# Async, though it waits for nothing: FastAPI sends every other dependency to a thread and back.
async def _filters(
    state: Annotated[list[JobState] | None, Query(description="One or more states.")] = None,
    framework: Annotated[str | None, Query(pattern="^(torch|tensorflow|python)$")] = None,
    kind: Annotated[str | None, Query(pattern="^(model|script)$", description="`model` or `script`.")] = None,
    tag: Annotated[str | None, Query(description="`key:value`.", examples=["team:birds"])] = None,
    created_after: Annotated[Moment | None, Query(description=_TIME)] = None,
    created_before: Annotated[Moment | None, Query(description=_TIME)] = None,
    q: Annotated[str | None, Query(max_length=120, description="A part of the name.")] = None,
) -> JobFilter:
    return JobFilter(
        states=tuple(dict.fromkeys(state or ())),
        framework=framework,
        kind=kind,
        tag=_tag(tag),
        created_after=created_after,
        created_before=created_before,
        q=q,
    )


def _tag(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    key, colon, value = text.partition(":")
    if not colon or not key:
        raise InvalidRequest([RequestProblem("/tag", "must be a key, a colon and a value.", "team:birds", "query")])
    return key, value


JobFilterDep = Annotated[JobFilter, Depends(_filters)]
