"""The service as a client sees it: only its HTTP API, on the port that the stack publishes."""

import contextlib
from collections.abc import Mapping
from typing import Any, Final

import httpx

from scripts.compose_test.stack import until

Json = dict[str, Any]
FINAL: Final = frozenset({"succeeded", "failed", "cancelled"})
JOB_S: Final = 300.0
_ANSWER_S: Final = 30.0
_PAGE: Final = 200


class UnexpectedAnswer(Exception):
    """The API refused, or a job came out otherwise than it must."""


class Service:
    """The API at `url` with an admin's key."""

    def __init__(self, url: str, key: str, transport: httpx.BaseTransport | None = None) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        # A proxy of this machine cannot reach its own loopback.
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=_ANSWER_S, trust_env=False, transport=transport
        )
        self._url, self._transport = url, transport

    def with_key(self, key: str) -> "contextlib.closing[Service]":
        """The same API with another key, for a `with` block."""
        return contextlib.closing(Service(self._url, key, self._transport))

    def close(self) -> None:
        self._http.close()

    def get(self, path: str, params: Mapping[str, Any] | None = None) -> Json:
        answer = self._http.get(path, params=params)
        return _content(answer)

    def post(self, path: str, body: Mapping[str, Any] | None = None) -> Json:
        return _content(self._http.post(path, json=body))

    def download(self, path: str) -> bytes:
        answer = self._http.get(path)
        _content_status(answer)
        return answer.content

    def is_ready(self) -> bool:
        """Whether all checks but the broker's are content and a worker is online; False too while nobody answers."""
        with contextlib.suppress(httpx.TransportError, UnexpectedAnswer, KeyError, ValueError):
            checks = self._http.get("/readyz", params={"verbose": "1"}).json()["checks"]
            well = all(check["status"] == "ok" for name, check in checks.items() if name != "broker")
            return well and any(worker["online"] for worker in self.get("/v1/workers")["data"])
        return False

    def submit(self, spec: Mapping[str, Any]) -> str:
        return str(self.post("/v1/jobs", spec)["id"])

    def upload(self, name: str, content: bytes) -> str:
        """The id of the data set made of a CSV file."""
        answer = self._http.post("/v1/datasets", files={"file": (name, content, "text/csv")})
        return str(_content(answer)["id"])

    def post_bundle(self, content: bytes) -> str:
        """The id of the bundle made of a ZIP archive."""
        return str(_content(self._bundle(content))["id"])

    def refusal_of_bundle(self, content: bytes) -> str | None:
        """The code with which the API refuses a bundle; None: it took it."""
        answer = self._bundle(content)
        return None if answer.is_success else str(answer.json()["code"])

    def _bundle(self, content: bytes) -> httpx.Response:
        return self._http.post("/v1/bundles", content=content, headers={"Content-Type": "application/zip"})

    def job(self, job_id: str) -> Json:
        return self.get(f"/v1/jobs/{job_id}")

    def wait(self, job_id: str, *states: str, limit_s: float = JOB_S) -> Json:
        """The job once it is in one of `states`; no state: once it has ended, which must be well."""
        wanted = states or ("succeeded",)

        def there() -> Json | None:
            with contextlib.suppress(httpx.TransportError, ServerFailed):
                job = self.job(job_id)
                if job["state"] in FINAL and job["state"] not in wanted:
                    raise UnexpectedAnswer(f"{job_id} {job['state']}: {job['cause']}: {job['message']}")
                return job if job["state"] in wanted else None
            return None

        return until(there, f"{job_id} is {' or '.join(wanted)}", limit_s)

    def checkpoints(self, job_id: str) -> list[Json]:
        """The newest first."""
        data: list[Json] = self.get(f"/v1/jobs/{job_id}/checkpoints")["data"]
        return data

    def trained(self, job_id: str) -> "Json":
        """The job's training loss as a series."""
        (found,) = self.get(f"/v1/jobs/{job_id}/metrics", {"names": "loss", "max_points": 100_000})["data"]
        series: Json = found
        return series

    def events(self, job_id: str) -> list[Json]:
        """The whole journal of a job."""
        found: list[Json] = []
        after = "0"
        while True:
            page = self.get(f"/v1/jobs/{job_id}/events", {"limit": _PAGE, "after": after})
            found += page["data"]
            after = str(page["next_after"])
            if not page["has_more"]:
                return found

    def worker(self) -> Json:
        """The one worker of the stack."""
        (found,) = self.get("/v1/workers")["data"]
        worker: Json = found
        return worker


class ServerFailed(UnexpectedAnswer):
    """The server could not answer just now: 5xx."""


def _content(answer: httpx.Response) -> Json:
    _content_status(answer)
    content: Json = answer.json()
    return content


def _content_status(answer: httpx.Response) -> None:
    if answer.is_success:
        return
    kind = ServerFailed if answer.is_server_error else UnexpectedAnswer
    raise kind(f"{answer.request.method} {answer.request.url.path} answered {answer.status_code}: {answer.text[:300]}")
