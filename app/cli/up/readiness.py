"""Whether the service can take jobs, asked of its API, as a client would see it."""

from dataclasses import dataclass
from http import HTTPStatus

import httpx

_ASK_S = 2.0
_KEY_REFUSED = "the key stored in this home is not accepted; `trainshed key create --save` makes another"


@dataclass(frozen=True)
class Look:
    """One look: `settled` when waiting would bring nothing more; `missing` is what is not there, in sentences."""

    settled: bool
    missing: tuple[str, ...]


class Readiness:
    """Looks at the service behind `url`; `key` may be empty, then workers are known only by what /readyz says."""

    def __init__(
        self, url: str, key: str, *, trust_env: bool = False, transport: httpx.BaseTransport | None = None
    ) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._has_key = bool(key)
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=_ASK_S, trust_env=trust_env, transport=transport
        )

    def close(self) -> None:
        self._http.close()

    def look(self) -> Look:
        try:
            return self._look()
        except (httpx.TransportError, ValueError, KeyError) as error:
            return Look(settled=False, missing=(f"the API does not answer: {error}",))

    def _look(self) -> Look:
        health = self._http.get("/readyz", params={"verbose": "true"}).json()
        checks = health["checks"].items()
        missing = tuple(f"{name}: {check['message']}" for name, check in checks if check["status"] != "ok")
        if health["status"] == "down":
            return Look(settled=False, missing=missing)
        if not self._has_key:
            return Look(settled=not missing, missing=missing)
        answer = self._http.get("/v1/workers")
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            return Look(settled=not missing, missing=(*missing, _KEY_REFUSED))
        # A worker that is online with less than all is as ready as it will get: a framework may not be installed.
        here = [worker for worker in answer.json()["data"] if worker["online"]]
        return Look(settled=any(worker["frameworks"] or worker["reason"] for worker in here), missing=missing)
