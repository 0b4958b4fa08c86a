"""Migrations: once under a lock however many start together, in step with the models, and back."""

import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, func, inspect, select

import app.artifacts.models
import app.checkpoints.models
import app.holds.models
import app.jobs.models
import app.predictions.models  # noqa: F401 - every table must be known
from app.artifacts.models import Artifact
from app.checkpoints.models import Checkpoint
from app.checkpoints.repository import add as add_checkpoint
from app.db import Base, Database
from app.jobs.models import Attempt, Job, JobHead, JobTag, JournalRow
from app.migrations_runner import is_current, script_location, upgrade
from tests.checkpoints.facts import facts
from tests.fakes import START, FakeClock
from tests.predictions.asking import make_asker
from tests.rows import add_attempt
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


class TestBack:
    """What refers to a job survives: on SQLite a table that is rebuilt would take its children along."""

    def test_children_of_jobs_survive_the_way_back_and_forth(self, empty_url: str) -> None:
        upgrade(empty_url)
        database = Database(empty_url)
        asker = make_asker(database, FakeClock())
        asker.ask()
        with database.write() as session:
            job = session.get_one(Job, asker.job_id)
            job.parent_job_id, job.parent_how, job.parent_step = "job_" + "0" * 26, "retry", 10
            add_attempt(session, job)
            session.add(JobTag(job_id=job.id, key="team", value="birds"))
            session.add(JournalRow(job_id=job.id, seq=1, attempt=1, kind="log", at=START, data="{}"))
            add_checkpoint(session, facts(job.id, 10), START, keep_periodic=True)
        before = counts(database)
        assert min(before.values()) > 0
        for revision in ("0001", "head"):
            migrate(database, revision)
            assert counts(database) == before
        with database.read() as session:
            assert is_current(session)
            assert session.get_one(Job, asker.job_id).parent_how is None
            assert session.scalar(select(func.count()).select_from(Checkpoint)) == 0
        database.dispose()


def migrate(database: Database, revision: str) -> None:
    with database.write() as session:
        config = Config()
        config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
        config.set_main_option("path_separator", "os")
        config.attributes["connection"] = session.connection()
        (command.upgrade if revision == "head" else command.downgrade)(config, revision)


def counts(database: Database) -> dict[str, int]:
    """Rows of what refers to jobs and was there before."""
    tables = (JobHead, Attempt, JobTag, JournalRow, Artifact)
    with database.read() as session:
        return {table.__tablename__: session.scalar(select(func.count()).select_from(table)) or 0 for table in tables}


def test_the_folder_of_migrations_is_no_package() -> None:
    assert not (script_location() / "__init__.py").exists()
    assert (script_location() / "env.py").is_file()
