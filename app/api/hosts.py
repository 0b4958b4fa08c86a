"""The Host allow-list: without it a page in somebody's browser could reach the API by DNS rebinding."""

from collections.abc import Collection

from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.errors import HostNotAllowed


class AllowedHosts:
    """Pure ASGI. `*` allows every name; ports do not matter; a request with two Host headers is refused."""

    def __init__(self, app: ASGIApp, allowed: Collection[str]) -> None:
        self.app = app
        self._any = "*" in allowed
        self._allowed = frozenset(_without_port(name.lower()) for name in allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._any:
            names = [bytes(value).decode("latin-1") for name, value in scope["headers"] if name == b"host"]
            host = names[0] if len(names) == 1 else ""
            if _without_port(host.lower()) not in self._allowed:
                raise HostNotAllowed(host)
        await self.app(scope, receive, send)


def _without_port(host: str) -> str:
    if host.startswith("["):  # an IPv6 address, [::1]:8000
        return host.partition("]")[0] + "]"
    return host.partition(":")[0] if host.count(":") == 1 else host
