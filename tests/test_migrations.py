"""Migrations: once under a lock however many start together, in step with the models, and back."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import create_engine, func, inspect, select

import app.artifacts.models
import app.bundles.models
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

# Upgrades the database of each line it reads, and says so. With a file's name as argument, whichever process is first
# in the middle of a migration makes that file and is killed.
UPGRADES = """
import os, signal, sys
from sqlalchemy import Engine, event
from app.migrations_runner import upgrade

statements = 0

def killed_midway(*_):
    global statements
    statements += 1
    if statements == 12:
        try:
            open(sys.argv[1], "x").close()
        except FileExistsError:
            return
        os.kill(os.getpid(), signal.SIGKILL)

if len(sys.argv) > 1:
    event.listen(Engine, "after_cursor_execute", killed_midway)
print("ready", flush=True)
for line in sys.stdin:
    upgrade(line.strip())
    print("upgraded", flush=True)
"""
AT_ONCE = 5
ROUNDS = 10


@pytest.fixture(params=["sqlite", "postgresql"])
def new_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], str]:
    """Makes an empty database; its address."""
    made = count()
    if request.param == "sqlite":
        return lambda: f"sqlite:///{tmp_path / f'empty_{next(made)}.db'}"
    server: PostgresServer = request.getfixturevalue("postgres")
    name = f"empty_{request.node.name.partition('[')[0]}"[:50]

    def make() -> str:
        database = f"{name}_{next(made)}"
        server.execute(f"CREATE DATABASE {database}")
        return server.url(database)

    return make


@pytest.fixture
def empty_url(new_url: Callable[[], str]) -> str:
    return new_url()


@pytest.fixture
def upgraders() -> Iterator[Callable[..., list[subprocess.Popen[str]]]]:
    """Starts processes that upgrade what they are told to, and that have imported all they need."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> list[subprocess.Popen[str]]:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes = [subprocess.Popen([sys.executable, "-c", UPGRADES, *arguments], **pipes) for _ in range(AT_ONCE)]
        started.extend(processes)
        assert [line_of(process) for process in processes] == ["ready"] * AT_ONCE
        return processes

    yield start
    for process in started:
        process.communicate(timeout=60)


def tell(processes: list[subprocess.Popen[str]], url: str) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(f"{url}\n")
        process.stdin.flush()


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def has_schema(url: str) -> bool:
    database = Database(url)
    with database.read() as session:
        current = is_current(session)
    database.dispose()
    return current


class TestUpgrade:
    def test_five_processes_at_the_same_instant_migrate_once(
        self, new_url: Callable[[], str], upgraders: Callable[..., list[subprocess.Popen[str]]]
    ) -> None:
        # Case C67.
        processes = upgraders()
        for _ in range(ROUNDS):
            url = new_url()
            tell(processes, url)
            assert [line_of(process) for process in processes] == ["upgraded"] * AT_ONCE
            assert has_schema(url)

    def test_when_the_first_is_killed_on_the_way_another_one_completes(
        self, empty_url: str, tmp_path: Path, upgraders: Callable[..., list[subprocess.Popen[str]]]
    ) -> None:
        # Case C67.
        processes = upgraders(str(tmp_path / "killed"))
        tell(processes, empty_url)
        said = [line_of(process) for process in processes]
        assert sorted(said) == ["", *["upgraded"] * (AT_ONCE - 1)]
        assert processes[said.index("")].wait(60) == -signal.SIGKILL
        assert has_schema(empty_url)

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
