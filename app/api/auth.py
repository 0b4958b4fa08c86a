"""Authentication in front of routing and body parsing: everything needs a key, except one short list of paths."""

import hashlib
from typing import Final

import anyio
from anyio.to_thread import run_sync
from starlette.types import ASGIApp, Receive, Scope, Send

from app.accounts.service import CodeNotAllowed, Principal, Role, authenticate
from app.api.errors import Forbidden, Unauthenticated
from app.clock import Clock
from app.db import Database

# The whole list of what is answered without a key; a test walks every route and holds it to that.
PUBLIC_PATHS: Final = frozenset({"/", "/livez", "/readyz", "/openapi.json", "/docs", "/docs/errors"})
PUBLIC_FOLDER: Final = "/docs/assets/"
PRINCIPAL: Final = "trainshed.principal"
SECRET: Final = "trainshed.secret"  # noqa: S105 - where in the scope the key is kept

_MAX_CACHED: Final = 10_000
_READERS: Final = 4


def is_public(path: str) -> bool:
    return path in PUBLIC_PATHS or path.startswith(PUBLIC_FOLDER)


def principal_of(scope: Scope) -> Principal:
    """Whose request this is; every route behind `Authentication` has one."""
    principal = scope.get(PRINCIPAL)
    if not isinstance(principal, Principal):
        raise Unauthenticated
    return principal


def demand(principal: Principal, required: Role) -> None:
    """Raise `Forbidden` when the role is lower than required."""
    if not principal.role.covers(required):
        raise Forbidden(principal.role.value, required.value)


def demand_permission(principal: Principal, permission: str) -> None:
    """Raise `CodeNotAllowed` when the key does not have the permission; `code` is the only one there is."""
    if not principal.may(permission):
        raise CodeNotAllowed(principal.key_id)


class Authenticator:
    """Who a key belongs to, asked at most once per `ttl_s` and key, so that a revoked key stops within that time.

    Keys are remembered by their digest: a dump of the process's memory should not hold more secrets than it must.
    """

    def __init__(self, database: Database, clock: Clock, ttl_s: float = 2.0) -> None:
        self._database = database
        self._clock = clock
        self._ttl_ns = round(ttl_s * 1_000_000_000)
        self._known: dict[bytes, tuple[Principal, int]] = {}
        self._limiter = anyio.CapacityLimiter(_READERS)

    async def principal(self, secret: str) -> Principal | None:
        """The key's owner, or None when the key does not work (now)."""
        digest = hashlib.sha256(secret.encode()).digest()
        found = self._known.get(digest)
        if found is not None and self._clock.boot_ns() - found[1] < self._ttl_ns:
            return found[0]
        asked = self._clock.boot_ns()
        principal = await run_sync(self._ask, secret, limiter=self._limiter)
        if principal is None:
            self._known.pop(digest, None)
            return None
        if len(self._known) >= _MAX_CACHED:
            self._known.clear()
        self._known[digest] = (principal, asked)
        return principal

    def forget(self) -> None:
        """Ask again for every key: called when one is revoked or changed here."""
        self._known.clear()

    def _ask(self, secret: str) -> Principal | None:
        with self._database.read() as session:
            return authenticate(session, secret, self._clock.now())


class Authentication:
    """Pure ASGI, default deny: a path is public because it is listed, never because a route forgot to ask."""

    def __init__(self, app: ASGIApp, authenticator: Authenticator) -> None:
        self.app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        if scope["type"] == "http" and not is_public(scope["path"]):
            secret = _bearer(scope)
            principal = await self._authenticator.principal(secret) if secret else None
            if principal is None:
                raise Unauthenticated
            scope[PRINCIPAL] = principal
            scope[SECRET] = secret
        await self.app(scope, receive, send)


def _bearer(scope: Scope) -> str:
    values = [bytes(value) for name, value in scope["headers"] if name == b"authorization"]
    if len(values) != 1:
        return ""
    kind, _, secret = values[0].decode("latin-1").partition(" ")
    return secret.strip() if kind.lower() == "bearer" else ""
