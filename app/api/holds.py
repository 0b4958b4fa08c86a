"""Holds: devices leased to a person, for a notebook or a debugger."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from anyio.to_thread import run_sync
from fastapi import Depends, Path, Query, Request, Response
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.accounts.service import Principal, Role
from app.api.bodies import decode, json_response, validated
from app.api.filters import IdempotencyKey
from app.api.hold_views import HoldChange, HoldRequest, HoldView
from app.api.idempotency import digest_of, find_replay, remember
from app.api.openapi import json_body, problems
from app.api.paging import Page, list_response, page_of
from app.api.routing import api_router
from app.api.services import PrincipalDep, Services, ServicesDep
from app.api.views import ListView
from app.broker import CHANNEL_WANTED
from app.db import lock_key
from app.errors import Unavailable
from app.fleet.models import Worker
from app.holds.errors import InvalidHold
from app.holds.models import Hold
from app.holds.repository import get_hold, list_holds
from app.holds.schemas import hold_json
from app.holds.service import Terms, Wish, extend, give_back, locked, take
from app.ids import pattern
from app.jobs.repository import active_ids
from app.scheduling.run import PASS_LOCK

router = api_router(prefix="/v1/holds", tag="Fleet")

HoldId = Annotated[str, Path(pattern=pattern("hold"), description="The hold's id.")]
HoldPage = Annotated[Page, Depends(page_of("hold"))]
State = Annotated[Literal["open", "ended"] | None, Query(description="Default: both.")]
_EXAMPLES = {"two cards for four hours": {"value": {"device_count": 2, "for_s": 14_400, "note": "notebook"}}}
_CHANGES = {"until a time": {"value": {"until": "2030-01-31T18:00:00Z"}}, "from now": {"value": {"for_s": 7200}}}


@router.post(
    "",
    status_code=201,
    summary="Hold devices",
    openapi_extra=json_body("HoldRequest", _EXAMPLES),
    responses={
        201: {
            "model": HoldView,
            "description": "The hold. A repeat with the same Idempotency-Key gets it again.",
            "headers": {
                "Location": {"schema": {"type": "string"}, "description": "The hold's address."},
                "Idempotency-Replayed": {"schema": {"type": "string"}, "description": "`true` on a repeat."},
            },
        },
        **problems("malformed_json", "invalid_request", "insufficient_devices", "devices_busy", "idempotency_mismatch"),
    },
)
async def create_hold(
    request: Request, services: ServicesDep, principal: PrincipalDep, idempotency_key: IdempotencyKey = None
) -> Response:
    """Lease devices of one host to yourself, by the rules that jobs are placed by.

    It takes what is free now and not kept for a job that waits; otherwise 409 `devices_busy` says who has them. The
    answer's `environment` is what a program on that host needs. Nobody stops your programs when the hold ends: a
    device on which one still runs is then shown as `in_use_elsewhere`.
    """
    raw = await request.body()
    wanted = validated(decode(raw), HoldRequest)
    _check_length(services, "for_s", wanted.for_s)
    same = None if idempotency_key is None else (idempotency_key, digest_of("POST /v1/holds", raw.decode()))
    content, replayed = await run_sync(_create, services, principal, wanted, same)
    services.hosts.forget()
    headers = {"Location": f"/v1/holds/{content['id']}"} | ({"Idempotency-Replayed": "true"} if replayed else {})
    return json_response(content, status=201, headers=headers)


def _create(
    services: Services, principal: Principal, wanted: HoldRequest, same: tuple[str, str] | None
) -> tuple[dict[str, Any], bool]:
    wish = Wish(principal.project_id, principal.user, principal.key_id, **wanted.model_dump())
    terms = Terms(services.limits.lease_s, services.limits.offline_after_s)
    try:
        with services.database.write() as session:
            lock_key(session, PASS_LOCK)
            now = services.database.now(session)
            earlier = find_replay(session, principal.key_id, same)
            if earlier is not None:
                return _shown(session, get_hold(session, principal.project_id, earlier), now), True
            hold = take(session, wish, now, terms, visible=active_ids(session, principal.project_id))
            if same is not None:
                remember(session, principal.key_id, same, hold.id, now)
                session.flush()
            return _shown(session, hold, now), False
    except IntegrityError as error:
        raise Unavailable("The hold met another request with its Idempotency-Key; send it again.") from error


@router.get("", summary="List holds", responses={200: {"model": ListView[HoldView]}})
def list_all_holds(
    request: Request, services: ServicesDep, principal: PrincipalDep, page: HoldPage, state: State = None
) -> Response:
    """A page of the project's holds, those that are over too; an admin sees those of all projects."""
    with services.database.read() as session:
        now = services.database.now(session)
        rows = list_holds(
            session,
            _reach(principal),
            is_open=None if state is None else state == "open",
            after=page.after,
            limit=page.fetch,
            descending=page.descending,
        )
        names = _host_names(session)
    return list_response(
        request, rows, page.limit, lambda row: hold_json(row, names[row.worker_id], now), lambda row: row.id
    )


@router.get("/{hold_id}", summary="Read a hold", responses={200: {"model": HoldView}})
def read_hold(hold_id: HoldId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """The hold, its devices, and the environment to use them."""
    with services.database.read() as session:
        hold = get_hold(session, _reach(principal), hold_id)
        return json_response(_shown(session, hold, services.database.now(session)))


@router.patch(
    "/{hold_id}",
    summary="Move the end of a hold",
    openapi_extra=json_body("HoldChange", _CHANGES),
    responses={200: {"model": HoldView}, **problems("malformed_json", "invalid_request", "conflict")},
)
async def change_hold(hold_id: HoldId, request: Request, services: ServicesDep, principal: PrincipalDep) -> Response:
    """Later or sooner. One that is over cannot be extended: its devices may be somebody else's."""
    change = validated(decode(await request.body()), HoldChange)
    if (change.until is None) == (change.for_s is None):
        raise InvalidHold("until", "Give exactly one of 'until' and 'for_s'.", '{"for_s": 7200}')

    def write() -> dict[str, Any]:
        with services.database.write() as session:
            hold = locked(session, _reach(principal), hold_id)
            now = services.database.now(session)
            extend(session, hold, _new_end(services, change, now))
            return _shown(session, hold, now)

    return json_response(await run_sync(write))


@router.delete("/{hold_id}", status_code=204, summary="Give held devices back")
def end_hold(hold_id: HoldId, services: ServicesDep, principal: PrincipalDep) -> Response:
    """The devices may be leased to others at once. Again is harmless. Stop your programs first."""
    with services.database.write() as session:
        hold = locked(session, _reach(principal), hold_id)
        give_back(session, hold, services.database.now(session))
    services.hosts.forget()
    services.bell.ring(CHANNEL_WANTED)
    return Response(status_code=204)


def _reach(principal: Principal) -> str | None:
    """Whose holds a key may see and end: its project's; an admin's all, since admins look after the hosts."""
    return None if principal.role is Role.ADMIN else principal.project_id


def _check_length(services: Services, field: str, for_s: float) -> None:
    longest = services.limits.max_hold_s
    if for_s > longest:
        raise InvalidHold(field, f"A hold lasts at most {longest:g} seconds (TRAINSHED_MAX_HOLD_S).", f"{longest:g}")


def _new_end(services: Services, change: HoldChange, now: datetime) -> datetime:
    if change.for_s is not None:
        _check_length(services, "for_s", change.for_s)
        return now + timedelta(seconds=change.for_s)
    assert change.until is not None  # noqa: S101 - the caller has checked that one of the two is there
    if change.until <= now:
        raise InvalidHold("until", "This time has passed; DELETE gives the devices back.", "2030-01-31T18:00:00Z")
    _check_length(services, "until", (change.until - now).total_seconds())
    return change.until


def _shown(session: Session, hold: Hold, now: datetime) -> dict[str, Any]:
    return hold_json(hold, _host_names(session)[hold.worker_id], now)


def _host_names(session: Session) -> dict[str, str]:
    return {row.id: row.host_name for row in session.execute(select(Worker.id, Worker.host_name))}
