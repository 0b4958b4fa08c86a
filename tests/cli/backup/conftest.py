"""A service to back up, on both databases, and an empty database of each kind to restore into."""

import uuid
from pathlib import Path

import pytest

from app.db import Database
from app.storage import LocalStorage
from tests.cli.backup.service import Service, populate
from tests.servers import PostgresServer


@pytest.fixture
def service(database: Database, tmp_path: Path) -> Service:
    made = Service(database, LocalStorage(tmp_path / "storage"), tmp_path)
    populate(made)
    return made


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backup.tar"


@pytest.fixture
def empty_url(tmp_path: Path) -> str:
    """A database of this name that has no tables yet."""
    return f"sqlite:///{tmp_path / 'restored.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def other_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same for each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'restored.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    name = f"restored_{uuid.uuid4().hex}"
    server.execute(f"CREATE DATABASE {name}")
    return server.url(name)


@pytest.fixture
def other_storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "other-storage")
