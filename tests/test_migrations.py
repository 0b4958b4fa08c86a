"""Migrations: once under a lock however many start together, in step with the models, and back."""

import subprocess
import sys
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, inspect

import app.artifacts.models
import app.checkpoints.models
import app.jobs.models
import app.predictions.models  # noqa: F401 - every table must be known
from app.db import Base, Database
from app.migrations_runner import is_current, script_location, upgrade
from tests.servers import PostgresServer

UPGRADE = "import sys; from app.migrations_runner import upgrade; upgrade(sys.argv[1])"


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'empty.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    name = f"empty_{request.node.name.partition('[')[0]}"
    server.execute(f"CREATE DATABASE {name}")
    return server.url(name)


class TestUpgrade:
    def test_four_processes_at_once_migrate_once(self, empty_url: str) -> None:
        processes = [subprocess.Popen([sys.executable, "-c", UPGRADE, empty_url]) for _ in range(4)]
        assert [process.wait(120) for process in processes] == [0, 0, 0, 0]
        database = Database(empty_url)
        with database.read() as session:
            assert is_current(session)
        database.dispose()

    def test_the_schema_is_what_the_models_say(self, empty_url: str) -> None:
        upgrade(empty_url)
        engine = create_engine(empty_url)
        with engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"compare_type": True})
            assert compare_metadata(context, Base.metadata) == []
            assert set(Base.metadata.tables) <= set(inspect(connection).get_table_names())
        engine.dispose()

    def test_a_database_without_a_schema_is_not_current(self, empty_url: str) -> None:
        database = Database(empty_url)
        with database.read() as session:
            assert not is_current(session)
        database.dispose()


def test_the_folder_of_migrations_is_no_package() -> None:
    assert not (script_location() / "__init__.py").exists()
    assert (script_location() / "env.py").is_file()
