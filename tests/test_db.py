"""The door to the database, on both kinds; where they differ, the test says what each does."""

import os
import socket
import sqlite3
import threading
import time
from pathlib import Path

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from app.accounts.models import Project
from app.datasets.models import Dataset
from app.db import Database, DatabaseDown, UnsupportedDatabase, lock_key
from app.errors import Unavailable
from tests.fakes import START, FakeClock
from tests.rows import add_dataset, add_project
from tests.servers import PostgresServer

ONLY_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
ONLY_POSTGRES = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


def projects(database: Database) -> list[str]:
    with database.read() as session:
        return list(session.scalars(select(Project.name).order_by(Project.name)))


class TestReadAndWrite:
    def test_a_write_is_there_for_the_next_read(self, database: Database) -> None:
        with database.write() as session:
            add_project(session, "birds")
        assert projects(database) == ["birds"]

    def test_an_error_in_the_block_undoes_all_of_it(self, database: Database) -> None:
        def write_then_fail() -> None:
            with database.write() as session:
                add_project(session, "birds")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            write_then_fail()
        assert projects(database) == []

    def test_the_read_side_cannot_write(self, database: Database) -> None:
        with pytest.raises(DBAPIError), database.read() as session:
            add_project(session, "birds")
        assert projects(database) == []

    def test_rows_can_be_used_after_their_session(self, database: Database) -> None:
        with database.write() as session:
            project = add_project(session, "birds")
        assert project.name == "birds"

    def test_a_constraint_is_reported_as_such_and_frees_the_writer(self, database: Database) -> None:
        for _ in range(2):
            twins = [Project(id=f"prj_{n}", name="same", created_at=START) for n in range(2)]
            with pytest.raises(IntegrityError), database.write() as session:
                session.add_all(twins)
        assert projects(database) == []

    def test_foreign_keys_are_enforced(self, database: Database) -> None:
        with pytest.raises(IntegrityError), database.write() as session:
            add_dataset(session, Project(id="prj_none", name="none", created_at=START))

    def test_a_reader_sees_one_moment_while_another_writes(self, database: Database) -> None:
        with database.read() as session:
            assert session.scalar(select(func.count()).select_from(Project)) == 0
            with database.write() as writer:
                add_project(writer, "birds")
            seen = session.scalar(select(func.count()).select_from(Project))
        # SQLite gives a snapshot for the whole block; PostgreSQL reads what is committed, statement by statement.
        assert seen == (0 if database.is_sqlite else 1)

    def test_a_snapshot_is_of_one_moment_on_both(self, database: Database) -> None:
        with database.snapshot() as session:
            assert session.scalar(select(func.count()).select_from(Project)) == 0
            with database.write() as writer:
                add_project(writer, "birds")
            assert session.scalar(select(func.count()).select_from(Project)) == 0
        assert projects(database) == ["birds"]

    def test_a_snapshot_cannot_write(self, database: Database) -> None:
        with pytest.raises(DBAPIError), database.snapshot() as session:
            add_project(session, "birds")
        assert projects(database) == []

    @ONLY_POSTGRES
    def test_a_snapshot_may_take_long_and_others_may_not(self, database: Database) -> None:
        limits = [text(f"SHOW {name}") for name in ("statement_timeout", "idle_in_transaction_session_timeout")]
        with database.snapshot() as session:
            assert [session.scalar(limit) for limit in limits] == ["0", "0"]
        with database.read() as session:
            assert [session.scalar(limit) for limit in limits] == ["1min", "30s"]

    def test_idle_sessions_hold_no_transaction(self, database: Database) -> None:
        # C56: a session that was never used or is closed keeps no connection out of the pool.
        with database.read() as session:
            session.execute(text("SELECT 1"))
        with database.write():
            pass
        assert database.reader.pool.checkedout() == database.writer.pool.checkedout() == 0  # type: ignore[attr-defined]


class TestReadThenWrite:
    """C55: a transaction that reads, and writes after somebody else has written, must not be refused."""

    @ONLY_SQLITE
    def test_the_trap_itself(self, database: Database, database_url: str) -> None:
        # The control experiment, with the driver alone: a deferred transaction is refused at once, with any timeout.
        path = database_url.removeprefix("sqlite:///")
        first = sqlite3.connect(path, timeout=10, isolation_level=None)
        first.execute("BEGIN")
        first.execute("SELECT count(*) FROM projects").fetchone()
        with database.write() as session:
            add_project(session, "between")
        with pytest.raises(sqlite3.OperationalError, match="locked"):
            first.execute("DELETE FROM projects")
        first.close()

    def test_ours_waits_for_its_turn(self, database: Database, database_url: str) -> None:
        other = Database(database_url, synchronous="normal")
        reading, wrote = threading.Event(), threading.Event()

        def write_meanwhile() -> None:
            reading.wait()
            with other.write() as session:
                add_project(session, "meanwhile")
            wrote.set()

        thread = threading.Thread(target=write_meanwhile)
        thread.start()
        with database.write() as session:
            count = session.scalar(select(func.count()).select_from(Project))
            reading.set()
            if not database.is_sqlite:
                wrote.wait()  # PostgreSQL lets the other one in; SQLite lets it wait until we have committed
            add_project(session, f"after seeing {count}")
        thread.join()
        other.dispose()
        assert projects(database) == ["after seeing 0", "meanwhile"]

    def test_counting_up_from_many_threads_loses_nothing(self, database: Database, database_url: str) -> None:
        with database.write() as session:
            dataset_id = add_dataset(session, add_project(session)).id

        def count() -> None:
            own = Database(database_url, synchronous="normal")
            for _ in range(20):
                with own.write() as session:
                    rows = session.scalar(select(Dataset.rows).where(Dataset.id == dataset_id).with_for_update())
                    session.execute(update(Dataset).where(Dataset.id == dataset_id).values(rows=(rows or 0) + 1))
            own.dispose()

        threads = [threading.Thread(target=count) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with database.read() as session:
            assert session.get_one(Dataset, dataset_id).rows == 80


class TestDatabaseDown:
    def test_an_address_where_nothing_listens(self) -> None:
        # A port that was just given back: refused at once.
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        database = Database(f"postgresql+psycopg://nobody@127.0.0.1:{port}/none")
        for block in (database.read, database.write):
            with pytest.raises(DatabaseDown) as caught, block() as session:
                session.execute(text("SELECT 1"))
            assert isinstance(caught.value, Unavailable)
            assert caught.value.retry_after_s > 0
            assert "127.0.0.1" not in str(caught.value)
        database.dispose()

    def test_a_file_that_cannot_be_opened(self, tmp_path: Path) -> None:
        (tmp_path / "trainshed.db").mkdir()
        database = Database(f"sqlite:///{tmp_path}/trainshed.db")
        with pytest.raises(DatabaseDown), database.read() as session:
            session.execute(text("SELECT 1"))
        database.dispose()

    def test_a_fault_of_a_statement_is_not_an_outage(self, database: Database) -> None:
        for block in (database.read, database.write):
            with pytest.raises(DBAPIError), block() as session:
                session.execute(text("SELECT 1 FROM no_such_table"))

    @ONLY_POSTGRES
    def test_a_connection_cut_in_the_middle_and_the_next_one(
        self, database: Database, postgres: PostgresServer
    ) -> None:
        def cut_off() -> None:
            with database.write() as session:
                add_project(session, "lost")
                pid = session.scalar(text("SELECT pg_backend_pid()"))
                postgres.execute(f"SELECT pg_terminate_backend({pid}, 10000)")

        with pytest.raises(DatabaseDown):
            cut_off()
        assert projects(database) == []
        with database.write() as session:
            add_project(session, "kept")
        assert projects(database) == ["kept"]

    @ONLY_POSTGRES
    def test_pooled_connections_that_died_while_idle_are_replaced(
        self, database: Database, postgres: PostgresServer
    ) -> None:
        with database.write() as session:
            add_project(session, "first")
        assert projects(database) == ["first"]
        postgres.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
            " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
        )
        assert projects(database) == ["first"]
        with database.write() as session:
            add_project(session, "second")
        assert projects(database) == ["first", "second"]

    def test_only_two_kinds_of_database_are_known(self) -> None:
        for url in ("mysql://db/ts", "postgresql://db/ts", "postgresql+asyncpg://db/ts", ""):
            with pytest.raises(UnsupportedDatabase, match=r"TRAINSHED_DATABASE_URL .* for example postgresql\+psycopg"):
                Database(url)

    def test_the_message_has_no_password(self) -> None:
        with pytest.raises(UnsupportedDatabase) as caught:
            Database("mysql://ts:s3cret@db/ts")
        assert "s3cret" not in str(caught.value)


class TestSqlite:
    @ONLY_SQLITE
    def test_connections_have_the_settings_that_durability_needs(self, database_url: str) -> None:
        database = Database(database_url)
        with database.write() as session:
            found = [session.scalar(text(f"PRAGMA {name}")) for name in ("journal_mode", "synchronous", "foreign_keys")]
        database.dispose()
        # sqlite.org/pragma.html: synchronous 2 is FULL.
        assert found == ["wal", 2, 1]

    @ONLY_SQLITE
    def test_the_last_connection_folds_the_log_into_the_file(self, database: Database, database_url: str) -> None:
        # So that copying one file is a whole backup of a stopped server.
        with database.write() as session:
            add_project(session)
        database.dispose()
        path = Path(database_url.removeprefix("sqlite:///"))
        assert [file for file in path.parent.iterdir() if file.name.startswith(path.name)] == [path]

    @ONLY_SQLITE
    def test_a_reader_is_not_held_up_by_a_writer(self, database: Database) -> None:
        with database.write() as session:
            add_project(session, "birds")
            assert projects(database) == []

    def test_the_folder_is_made(self, tmp_path: Path) -> None:
        database = Database(f"sqlite:///{tmp_path}/deep/down/trainshed.db")
        with database.write() as session:
            session.execute(text("SELECT 1"))
        database.dispose()
        assert (tmp_path / "deep" / "down" / "trainshed.db").exists()


class TestNow:
    def test_it_is_the_clock_that_was_given(self, database: Database, clock: FakeClock) -> None:
        later = clock.advance(5)
        with database.read() as session:
            assert database.now(session) == later

    def test_else_the_databases_own_also_inside_one_transaction(self, database_url: str) -> None:
        database = Database(database_url)
        with database.read() as session:
            first, before = database.now(session), time.time()
            second = database.now(session)
        database.dispose()
        assert first.tzinfo is not None
        # now() of PostgreSQL stands still in a transaction; clock_timestamp() must not.
        assert first < second
        assert abs(second.timestamp() - before) < 60


class TestLockKey:
    def test_transactions_with_one_key_take_turns(self, database: Database, database_url: str) -> None:
        order: list[str] = []
        inside = threading.Event()

        def second() -> None:
            other = Database(database_url, synchronous="normal")
            inside.wait()
            with other.write() as session:
                lock_key(session, 42)
                order.append("second")
            other.dispose()

        thread = threading.Thread(target=second)
        thread.start()
        with database.write() as session:
            lock_key(session, 42)
            inside.set()
            _wait_until_somebody_waits(database)
            order.append("first")
        thread.join()
        assert order == ["first", "second"]

    @ONLY_POSTGRES
    def test_other_keys_do_not_wait(self, database: Database, database_url: str) -> None:
        other = Database(database_url)
        with database.write() as session, other.write() as another:
            lock_key(session, 1)
            lock_key(another, 2)
        other.dispose()


def _wait_until_somebody_waits(database: Database) -> None:
    """PostgreSQL can say that a transaction waits; a SQLite writer waits in its driver, where nobody can look."""
    waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
    until = time.monotonic() + 20
    while not database.is_sqlite:
        with database.read() as session:
            if session.scalar(waiting):
                return
        assert time.monotonic() < until, "the second transaction never waited"


class TestNewFile:
    def test_a_new_database_is_for_its_owner_alone_whatever_the_umask(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            database = Database(f"sqlite:///{tmp_path}/home/trainshed.db")
            with database.write() as session:
                session.execute(text("CREATE TABLE t (x INTEGER)"))
            modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "home").iterdir()}
            database.dispose()
        finally:
            os.umask(before)
        assert modes == dict.fromkeys(("trainshed.db", "trainshed.db-shm", "trainshed.db-wal"), 0o600)
        assert (tmp_path / "home").stat().st_mode & 0o777 == 0o700

    def test_one_that_is_there_keeps_its_mode(self, tmp_path: Path) -> None:
        path = tmp_path / "trainshed.db"
        path.touch()
        path.chmod(0o640)
        database = Database(f"sqlite:///{path}")
        assert projects_table_is_absent(database)
        database.dispose()
        assert path.stat().st_mode & 0o777 == 0o640


def projects_table_is_absent(database: Database) -> bool:
    with database.read() as session:
        return session.execute(text("SELECT name FROM sqlite_master")).first() is None
