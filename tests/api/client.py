"""A client that calls the application without a network, and one tenant's keys."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI
from httpx import ASGITransport

from app.accounts.service import Role, create_key
from app.api.services import Services
from app.db import Database
from tests.fakes import START

# For tests of what no database could change.
ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
# The same quick job as the shared examples use; no upload is needed.
SPEC: dict[str, Any] = {
    "framework": "torch",
    "model": {"type": "mlp", "hidden": [8]},
    "data": "iris",
    "device_count": 1,
    "device_type": "cpu",
}


@dataclass(frozen=True)
class Tenant:
    """A project's name, one working key for each role without permissions, and a user's with the permission `code`."""

    project: str
    project_id: str
    viewer: str
    user: str
    admin: str
    coder: str


def new_tenant(database: Database, project: str) -> Tenant:
    secrets = {}
    project_id = ""
    with database.write() as session:
        for role in Role:
            key, secrets[role.value] = create_key(
                session, project=project, user=f"{role.value}-of-{project}", name="test", role=role, now=START
            )
            project_id = key.project_id
        coder = f"coder-of-{project}"
        _, secrets["coder"] = create_key(
            session, project=project, user=coder, name="test", role=Role.USER, now=START, permissions=["code"]
        )
    return Tenant(project, project_id, **secrets)


@dataclass(frozen=True)
class Api:
    """Sends requests as one key; `with_key` gives the same client another."""

    app: FastAPI
    portal: BlockingPortal
    http: httpx.AsyncClient
    key: str | None = None

    @property
    def services(self) -> Services:
        services = self.app.state.services
        assert isinstance(services, Services)
        return services

    def with_key(self, key: str | None) -> "Api":
        return replace(self, key=key)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        headers = httpx.Headers(options.pop("headers", None))
        if self.key is not None:
            headers.setdefault("Authorization", f"Bearer {self.key}")

        async def send() -> httpx.Response:
            return await self.http.request(method, path, headers=headers, **options)

        return self.portal.call(send)

    def get(self, path: str, **options: Any) -> httpx.Response:
        return self.request("GET", path, **options)

    def post(self, path: str, **options: Any) -> httpx.Response:
        return self.request("POST", path, **options)

    def patch(self, path: str, **options: Any) -> httpx.Response:
        return self.request("PATCH", path, **options)

    def delete(self, path: str, **options: Any) -> httpx.Response:
        return self.request("DELETE", path, **options)

    def submit(self, **changes: Any) -> dict[str, Any]:
        """A job that was accepted."""
        answer = self.post("/v1/jobs", json=SPEC | changes)
        assert answer.status_code == 201, answer.text
        return dict(answer.json())

    def together(self, requests: list[tuple[str, str, dict[str, Any]]]) -> list[httpx.Response]:
        """Send all at the same time; answers in the order of the requests."""

        def send(item: tuple[str, str, dict[str, Any]]) -> httpx.Response:
            method, path, options = item
            return self.request(method, path, **options)

        with ThreadPoolExecutor(len(requests)) as pool:
            return list(pool.map(send, requests))


@contextmanager
def running(app: FastAPI, key: str | None = None) -> Iterator[Api]:
    """The application with its lifespan, in an event loop of its own."""
    with start_blocking_portal() as portal:
        lifespan = portal.wrap_async_context_manager(app.router.lifespan_context(app))
        transport = ASGITransport(app, raise_app_exceptions=False)
        http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        with lifespan, portal.wrap_async_context_manager(http):
            yield Api(app, portal, http, key)


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """The problem document, after checking what every one must have."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json"), answer.text
    document = dict(answer.json())
    assert document["code"] == code, document
    assert document["status"] == status
    assert document["type"] == f"/docs/errors#{code}"
    assert document["request_id"] == answer.headers["x-request-id"]
    assert document["title"]
    assert document["detail"]
    return document
