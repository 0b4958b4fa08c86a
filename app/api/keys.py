"""API keys, for admins."""

from typing import Annotated, Final

from anyio.to_thread import run_sync
from fastapi import Path, Request, Response

from app.accounts.schemas import key_json
from app.accounts.service import Role, create_key, list_keys, permit_key, revoke_key
from app.api.bodies import json_response, read_model
from app.api.errors import InvalidRequest, RequestProblem
from app.api.key_views import KeyChange, KeyRequest, KeyView, NewKeyView
from app.api.openapi import json_body, problems
from app.api.paging import KeyPage, list_response
from app.api.routing import api_router, role
from app.api.services import PrincipalDep, ServicesDep
from app.api.views import ListView
from app.ids import pattern

router = api_router(prefix="/v1/keys", tag="Keys")

KeyId = Annotated[str, Path(pattern=pattern("key"), description="The key's id.")]
_NO_REPEAT: Final = (
    "is not possible here: a key's secret is shown once and stored nowhere, so no answer could be given again; "
    "leave the header out, and revoke a key whose answer was lost."
)
_EXAMPLE = {
    "user key": {"value": {"user": "ada", "name": "laptop", "role": "user"}},
    "one that may bring code": {"value": {"user": "ada", "name": "laptop", "role": "user", "permissions": ["code"]}},
}
_CHANGES = {"may bring code": {"value": {"permissions": ["code"]}}, "no more": {"value": {"permissions": []}}}


@router.post(
    "",
    status_code=201,
    summary="Create a key",
    openapi_extra=json_body("KeyRequest", _EXAMPLE) | role(Role.ADMIN),
    responses={
        201: {"model": NewKeyView, "description": "The key. `secret` is shown this once."},
        **problems("malformed_json", "invalid_request"),
    },
)
async def create_api_key(request: Request, services: ServicesDep, principal: PrincipalDep) -> Response:
    """Make a key for a user of a project: yours, or another one, which is made when it does not exist yet.

    `Idempotency-Key` is refused: a repeat would have to show the secret again, which is stored nowhere.
    """
    if "idempotency-key" in request.headers:
        raise InvalidRequest([RequestProblem("/idempotency-key", _NO_REPEAT, None, "header")])
    wanted = await read_model(request, KeyRequest)
    project = wanted.project or principal.project

    def write() -> dict[str, object]:
        with services.database.write() as session:
            key, secret = create_key(
                session,
                project=project,
                user=wanted.user,
                name=wanted.name,
                role=Role(wanted.role),
                now=services.clock.now(),
                expires_at=wanted.expires_at,
                permissions=wanted.permissions,
            )
            return {**key_json(key, project.strip()), "secret": secret}

    return json_response(await run_sync(write), status=201)


@router.get("", summary="List keys", openapi_extra=role(Role.ADMIN), responses={200: {"model": ListView[KeyView]}})
def list_api_keys(request: Request, services: ServicesDep, page: KeyPage) -> Response:
    """All keys of all projects, revoked ones too. Their secrets cannot be read again."""
    with services.database.read() as session:
        rows = list_keys(session, after=page.after, limit=page.fetch, descending=page.descending)
    return list_response(request, rows, page.limit, lambda row: key_json(*row), lambda row: row[0].id)


@router.patch(
    "/{key_id}",
    summary="Change what a key may",
    openapi_extra=json_body("KeyChange", _CHANGES) | role(Role.ADMIN),
    responses={200: {"model": KeyView}, **problems("malformed_json", "invalid_request", "conflict")},
)
async def change_api_key(key_id: KeyId, request: Request, services: ServicesDep) -> Response:
    """Give or take permissions: the list is all that the key has from now on, whatever its role.

    It holds at once here, and within seconds on other API processes. Jobs that were submitted before go on.
    """
    wanted = await read_model(request, KeyChange)

    def write() -> dict[str, object]:
        with services.database.write() as session:
            return key_json(*permit_key(session, key_id, wanted.permissions))

    changed = await run_sync(write)
    services.authenticator.forget()
    return json_response(changed)


@router.delete(
    "/{key_id}",
    status_code=204,
    summary="Revoke a key",
    openapi_extra=role(Role.ADMIN),
    responses=problems("conflict"),
)
def revoke_api_key(key_id: KeyId, services: ServicesDep) -> Response:
    """The key stops working at once, on other API processes and open streams within seconds. Again is harmless."""
    with services.database.write() as session:
        revoke_key(session, key_id, services.clock.now())
    services.authenticator.forget()
    return Response(status_code=204)
