"""Lists: a page by keyset. The id of the last row is the cursor, so inserts never shift a page."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response

from app.api.bodies import json_response
from app.ids import pattern

Row = TypeVar("Row")
Cursor = TypeVar("Cursor", str, int)
Limit = Annotated[int, Query(ge=1, le=200, description="How many to answer at most.")]
Order = Annotated[Literal["desc", "asc"], Query(description="`desc`: the newest first.")]


@dataclass(frozen=True)
class Page:
    """Which rows are wanted: up to `limit` after the id `after`. Read `fetch` rows, one more than wanted."""

    limit: int
    after: str | None
    descending: bool

    @property
    def fetch(self) -> int:
        return self.limit + 1


def page_of(prefix: str) -> Callable[..., Coroutine[None, None, Page]]:
    """The dependency that reads the page of a list of ids with this prefix."""
    cursor = Query(pattern=pattern(prefix), description="The id of the last row you have.")

    # Async, though it waits for nothing: FastAPI sends every other dependency to a thread and back.
    async def read(limit: Limit = 50, after: Annotated[str | None, cursor] = None, order: Order = "desc") -> Page:
        return Page(limit, after, order == "desc")

    return read


JobPage = Annotated[Page, Depends(page_of("job"))]
DatasetPage = Annotated[Page, Depends(page_of("ds"))]
KeyPage = Annotated[Page, Depends(page_of("key"))]


def list_response(
    request: Request, rows: Sequence[Row], limit: int, shape: Callable[[Row], Any], cursor: Callable[[Row], Cursor]
) -> Response:
    """The first `limit` of `rows` as a list object; when there are more, with the cursor and a Link header."""
    shown = rows[:limit]
    has_more = len(rows) > limit
    next_after = cursor(shown[-1]) if has_more else None
    content = {
        "object": "list",
        "data": [shape(row) for row in shown],
        "has_more": has_more,
        "next_after": next_after,
    }
    return json_response(content, headers=None if next_after is None else {"Link": next_link(request, next_after)})


def next_link(request: Request, after: str | int) -> str:
    kept = [(name, value) for name, value in request.query_params.multi_items() if name != "after"]
    return f'<{request.url.path}?{urlencode([*kept, ("after", after)])}>; rel="next"'
