"""One kind of route for the whole API: it checks role, permission and names of the query before anything is read."""

import difflib
from collections.abc import Callable, Coroutine
from typing import Any, Final

from fastapi import APIRouter, Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from app.accounts.service import Role
from app.api.auth import demand, demand_permission, is_public, principal_of
from app.api.errors import InvalidRequest, RequestProblem

ROLE_KEY: Final = "x-required-role"
PERMISSION_KEY: Final = "x-required-permission"
Handler = Callable[[Request], Coroutine[Any, Any, Response]]


def role(required: Role) -> dict[str, Any]:
    """What a route passes as `openapi_extra` when its role is not the one of its method."""
    return {ROLE_KEY: required.value}


def permission(required: str) -> dict[str, Any]:
    """What a route passes as `openapi_extra` when a role is not enough; see `app.accounts.service.PERMISSIONS`."""
    return {PERMISSION_KEY: required}


class ApiRoute(APIRoute):
    """Reading takes a viewer, changing a user, unless the route says otherwise; an unknown query name is refused.

    A misspelt filter that is silently ignored answers a question nobody asked.
    """

    @property
    def required_role(self) -> Role:
        stated = (self.openapi_extra or {}).get(ROLE_KEY)
        if stated is not None:
            return Role(stated)
        return Role.VIEWER if (self.methods or set()) <= {"GET", "HEAD"} else Role.USER

    @property
    def required_permission(self) -> str | None:
        return (self.openapi_extra or {}).get(PERMISSION_KEY)

    def get_route_handler(self) -> Handler:
        handle = super().get_route_handler()
        known = frozenset(_query_names(self.dependant))
        required, permitted = self.required_role, self.required_permission
        public = is_public(self.path)

        async def checked(request: Request) -> Response:
            if not public:
                demand(principal_of(request.scope), required)
                if permitted is not None:
                    demand_permission(principal_of(request.scope), permitted)
            if request.scope["query_string"]:
                _check_query(request, known)
            return await handle(request)

        return checked


def api_router(*, prefix: str = "", tag: str) -> APIRouter:
    return APIRouter(
        prefix=prefix, tags=[tag], route_class=ApiRoute, generate_unique_id_function=lambda route: route.name
    )


def _query_names(dependant: Dependant) -> list[str]:
    names = [field.alias for field in dependant.query_params]
    for inner in dependant.dependencies:
        names += _query_names(inner)
    return names


def _check_query(request: Request, known: frozenset[str]) -> None:
    problems = []
    for name, value in request.query_params.multi_items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            message = f"is not a parameter here; known: {', '.join(sorted(known)) or 'none'}."
            problems.append(RequestProblem(f"/{name}", message, near[0] if near else None, "query"))
        elif "\x00" in value:
            problems.append(RequestProblem(f"/{name}", "must not contain the character NUL.", None, "query"))
    if problems:
        raise InvalidRequest(problems)
