"""Fixtures of the API's tests: the real application over a real database."""

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fastapi import FastAPI

from app.api.hub import Pace
from app.broker import Bell
from app.db import Database
from app.main import create_app
from app.settings import Settings
from app.storage import Storage, open_storage
from tests.api.client import Api, Tenant, new_tenant, running
from tests.api.coding import add_bundle
from tests.api.serve import serving
from tests.fakes import FakeClock

# Small, so that a test of a quiet stream waits for little; what is tested is the order of things, never the time.
QUICK = Pace(poll_s=0.02, tick_s=0.05)
MakeApp = Callable[..., FastAPI]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(home=tmp_path / "home", max_upload_bytes=200_000, max_body_bytes=20_000)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(f"file://{tmp_path}/storage")


@pytest.fixture
def app(settings: Settings, database: Database, storage: Storage, clock: FakeClock) -> FastAPI:
    return create_app(settings, database, storage, Bell(None), clock=clock, pace=QUICK)


@pytest.fixture
def tenant(database: Database) -> Tenant:
    return new_tenant(database, "birds")


@pytest.fixture
def other(database: Database) -> Tenant:
    """Another project, whose things the first must not see."""
    return new_tenant(database, "whales")


@pytest.fixture
def api(app: FastAPI, tenant: Tenant) -> Iterator[Api]:
    """A client with the key of a user."""
    with running(app, tenant.user) as client:
        yield client


@pytest.fixture
def coder(api: Api, tenant: Tenant) -> Api:
    """The same client with the key of a user who may bring code."""
    return api.with_key(tenant.coder)


@pytest.fixture
def bundle(coder: Api) -> str:
    """The id of the code in `tests.api.coding.FILES`, uploaded."""
    return add_bundle(coder)


@pytest.fixture
def url(app: FastAPI, settings: Settings) -> Iterator[str]:
    """The application behind a real server, for what only a connection shows: streams, and how they end."""
    with serving(app, settings) as address:
        yield address


@pytest.fixture
def short_socket() -> Iterator[Path]:
    """A path for a Unix socket; the test's own folder can be longer than the 107 bytes that one may have."""
    with tempfile.TemporaryDirectory(prefix="ts") as folder:
        yield Path(folder) / "s"
