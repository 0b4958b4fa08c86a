"""Fixtures of the end-to-end tests: one service per database for the whole run, and a folder for services of a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.stack import Stack, running_stack
from tests.servers import PostgresServer

_DATABASE = "end_to_end"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here starts real processes."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.e2e)


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def stack(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A service that all tests share, over each database. Whoever kills a child waits until it is back."""
    home = tmp_path_factory.mktemp("stack") / request.param
    if request.param == "sqlite":
        with running_stack(home) as running:
            yield running
        return
    server: PostgresServer = request.getfixturevalue("postgres")
    server.execute(f"CREATE DATABASE {_DATABASE}")
    with running_stack(home, {"TRAINSHED_DATABASE_URL": server.url(_DATABASE)}) as running:
        yield running
    server.execute(f"DROP DATABASE {_DATABASE} WITH (FORCE)")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Where a test's own service lives."""
    return tmp_path / "home"
