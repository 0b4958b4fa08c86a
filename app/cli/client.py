"""The API as the commands use it: JSON in and out, problem documents as errors."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import httpx

from app import __version__
from app.cli.connection import Connection
from app.cli.errors import NotTrainshed, Refused, ServerFailed, Unreachable

_CONNECT_S: Final = 5.0
_ANSWER_S: Final = 60.0
# The server sends a comment at least every 15 s; longer silence means that the connection is dead.
STREAM_SILENCE_S: Final = 45.0
_TRIES: Final = 3
_PAUSE_S: Final = 0.5
_PAGE: Final = 200
_SERVER_ERRORS: Final = 500


class Client:
    """One server and one key. Every method raises Refused, ServerFailed, NotTrainshed or Unreachable."""

    def __init__(
        self, connection: Connection, transport: httpx.BaseTransport | None, pause: Callable[[float], None]
    ) -> None:
        self.url = connection.url
        self._pause = pause
        self._http = httpx.Client(
            base_url=connection.url,
            headers={"Authorization": f"Bearer {connection.key}", "User-Agent": f"trainshed/{__version__}"},
            timeout=httpx.Timeout(_ANSWER_S, connect=_CONNECT_S),
            transport=transport,
            # A proxy meant for the world outside cannot reach a server on this host.
            trust_env=not connection.is_local,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Any:  # noqa: ANN401 - JSON
        return self._json(self._request("GET", path, params=_given(params)))

    def get_text(self, path: str, params: Mapping[str, Any] | None = None) -> str:
        return self._request("GET", path, params=_given(params)).text

    def pages(self, path: str, limit: int, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """One list object with up to `limit` items, read in as many pages as that takes."""
        found: list[Any] = []
        after = None
        while True:
            asked = {**(params or {}), "limit": min(limit - len(found), _PAGE), "after": after}
            page = self.get(path, asked)
            found += page["data"]
            after = page["next_after"]
            if not page["has_more"] or len(found) >= limit:
                return {**page, "data": found}

    def post(
        self,
        path: str,
        content: bytes = b"",
        *,
        key: str | None = None,
        media: str = "application/json",
        params: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - JSON
        """Send JSON. With an Idempotency-Key a lost answer is asked for again: it cannot create anything twice."""
        headers = {"Content-Type": media} if content else {}
        if key is None:
            return self._json(self._request("POST", path, content=content, headers=headers, params=_given(params)))
        headers["Idempotency-Key"] = key
        for attempt in range(1, _TRIES + 1):
            try:
                return self._json(self._request("POST", path, content=content, headers=headers))
            except Unreachable as error:
                if attempt == _TRIES or not error.after_connecting:
                    raise
                self._pause(_PAUSE_S * attempt)
        raise AssertionError

    def patch(self, path: str, content: bytes) -> Any:  # noqa: ANN401 - JSON
        return self._json(self._request("PATCH", path, content=content, headers={"Content-Type": "application/json"}))

    def delete(self, path: str) -> None:
        self._request("DELETE", path)

    def upload(self, path: str, file: Path, params: Mapping[str, Any], media: str | None = None) -> Any:  # noqa: ANN401 - JSON
        """Send a file as it lies on disk, in pieces; the server finds out by itself what it is, unless `media` says."""
        guess = "text/csv" if file.suffix.lower() == ".csv" else "application/octet-stream"
        with file.open("rb") as content:
            headers = {"Content-Type": media or guess}
            return self._json(self._request("POST", path, params=_given(params), content=content, headers=headers))

    @contextlib.contextmanager
    def stream(
        self, path: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx.Response]:
        """An answer that is read as it comes; a connection lost on the way is Unreachable too."""
        timeout = httpx.Timeout(STREAM_SILENCE_S, connect=_CONNECT_S)
        try:
            with self._http.stream("GET", path, params=_given(params), headers=headers, timeout=timeout) as answer:
                if answer.is_error:
                    answer.read()
                self._check(answer)
                yield answer
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def _request(self, method: str, path: str, **arguments: Any) -> httpx.Response:  # noqa: ANN401 - httpx's own
        try:
            answer = self._http.request(method, path, **arguments)
        except httpx.TransportError as error:
            raise self._unreachable(error) from error
        self._check(answer)
        return answer

    def _unreachable(self, error: httpx.TransportError) -> Unreachable:
        before = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.UnsupportedProtocol)
        return Unreachable(self.url, str(error) or type(error).__name__, after_connecting=not before)

    def _check(self, answer: httpx.Response) -> None:
        if answer.is_success:
            return
        content = _decoded(answer)
        if not isinstance(content, dict) or "code" not in content:
            raise NotTrainshed(self.url, answer.status_code)
        raise (ServerFailed if answer.status_code >= _SERVER_ERRORS else Refused)(content)

    def _json(self, answer: httpx.Response) -> Any:  # noqa: ANN401 - JSON
        content = _decoded(answer)
        if content is None:
            raise NotTrainshed(self.url, answer.status_code)
        return content


def _decoded(answer: httpx.Response) -> Any:  # noqa: ANN401 - JSON
    try:
        return answer.json()
    except ValueError:
        return None


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}
