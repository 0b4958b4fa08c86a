"""Fixtures for every test: databases, Redis, a clock that stands still, and the leak police.

`database` is migrated and empty for each test and runs the test once per kind. A test that is about one kind says so:
`@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)`. On PostgreSQL the tests of one process share one
database, so a test that changes the schema makes its own: `postgres.execute("CREATE DATABASE …")`.
"""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import settings

from app import logs
from app.db import Database
from app.migrations_runner import upgrade
from tests.fakes import FakeClock
from tests.leaks import leaks_since, snapshot
from tests.s3 import S3Server, s3_server
from tests.servers import PostgresServer, RedisServer, postgres_server, redis_server

# The one that every server has; creating another costs 0.3 s.
_POSTGRES_DATABASE = "postgres"

# No deadline, since no test may depend on how fast a machine is; no stored examples, since a checkout may be read-only.
settings.register_profile("trainshed", deadline=None, database=None)
settings.load_profile("trainshed")


@pytest.fixture(autouse=True)
def no_leaks() -> Iterator[None]:
    """Fails a test that leaves a non-daemon thread, a child process or a changed environment variable behind."""
    before, facts = snapshot(), dict(logs._PROCESS)
    yield
    # A worker that ran in this process has told its log who it is.
    logs._PROCESS.clear()
    logs._PROCESS.update(facts)
    leaks = leaks_since(before)
    if leaks:
        pytest.fail("the test left behind: " + "; ".join(leaks))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """One server per pytest process; it starts when the first test asks for it."""
    with postgres_server() as server:
        upgrade(server.url(_POSTGRES_DATABASE))
        yield server


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of a migrated, empty database; several `Database` objects or processes may open it."""
    if request.param == "sqlite":
        path = tmp_path / "trainshed.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        return f"sqlite:///{path}"
    server: PostgresServer = request.getfixturevalue("postgres")
    server.empty(_POSTGRES_DATABASE)
    return server.url(_POSTGRES_DATABASE)


@pytest.fixture
def database(database_url: str, clock: FakeClock) -> Iterator[Database]:
    """The database whose own time is `clock`; move that to let leases run out."""
    database = Database(database_url, clock=clock, synchronous="normal")
    try:
        yield database
    finally:
        database.dispose()


@pytest.fixture(scope="session")
def shared_redis() -> Iterator[RedisServer]:
    with redis_server() as server:
        yield server


@pytest.fixture
def redis_url(shared_redis: RedisServer) -> str:
    """The address of an empty Redis; a test that kills Redis starts its own with `tests.servers.redis_server`."""
    with closing(shared_redis.client()) as client:
        client.flushall()
    return shared_redis.url


@pytest.fixture(scope="session")
def shared_s3() -> Iterator[S3Server]:
    """One server per pytest process; each test makes its own bucket."""
    with s3_server() as server:
        yield server
