"""One door to the database: SQLite (embedded) and PostgreSQL behind the same code.

Reads and writes are different context managers. A write commits when its block ends and rolls back on any error; no
session outlives its block, so no transaction waits for training, files or the network. JSON is kept as text in both
databases (docs/decisions/0004): hot paths splice it, never decode it.
"""

import contextlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import orjson
from sqlalchemy import DateTime, Dialect, Engine, MetaData, Text, create_engine, event, func, select, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import DeclarativeBase, Session
from sqlalchemy.pool import ConnectionPoolEntry
from sqlalchemy.types import TypeDecorator

from app.clock import Clock
from app.errors import TrainshedError, Unavailable


class Base(DeclarativeBase):
    """The parent of every table; constraint names are fixed so that migrations can name them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class UtcDateTime(TypeDecorator[datetime]):
    """An aware time, kept in UTC; a naive one is refused, since it would mean another hour on another host."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError("a time without a time zone must not reach the database")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class JsonText(TypeDecorator[Any]):
    """JSON as text. `type_coerce(column, Text)` reads it without decoding."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ANN401, ARG002
        return None if value is None else orjson.dumps(value).decode()

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:  # noqa: ANN401, ARG002
        return None if value is None else orjson.loads(value)


class DatabaseDown(Unavailable):
    """The database does not answer; nothing of the request was kept."""

    code = "database_unavailable"


class UnsupportedDatabase(TrainshedError):
    code = "invalid_settings"


class Database:
    """Two engines over one database: a reader that cannot write, and a writer whose transactions take the write lock.

    SQLite's own waiting is unfair (it sleeps and polls), so writers of one process queue at a lock first:
    measured, that takes the p99 of a submit down 5 to 12 times.
    """

    def __init__(self, url: str, *, clock: Clock | None = None, synchronous: str = "full", pool_size: int = 10) -> None:
        self.url = url
        self.is_sqlite = url.startswith("sqlite:")
        if not self.is_sqlite and not url.startswith("postgresql+psycopg:"):
            raise UnsupportedDatabase(
                "TRAINSHED_DATABASE_URL must start with sqlite:/// or postgresql+psycopg://, "
                "for example postgresql+psycopg://trainshed:secret@db/trainshed"
            )
        self._clock = clock
        self._write_lock = threading.Lock() if self.is_sqlite else None
        self.writer = _engine(url, read_only=False, synchronous=synchronous, pool_size=pool_size)
        self.reader = _engine(url, read_only=True, synchronous=synchronous, pool_size=pool_size)

    @contextmanager
    def read(self) -> Iterator[Session]:
        """For reading only: a write through it is refused by the database.

        SQLite shows one snapshot for the whole block, PostgreSQL one per statement.

        Raises:
            DatabaseDown: the database cannot be reached.
        """
        with _translated(), Session(self.reader, autoflush=False, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """As `read`, but one moment for the whole block with PostgreSQL too, and without its limits on time.

        For what reads a whole database: SQLite keeps what was written meanwhile in its log until the block ends.

        Raises:
            DatabaseDown: the database cannot be reached.
        """
        engine = self.reader if self.is_sqlite else self.reader.execution_options(isolation_level="REPEATABLE READ")
        with _translated(), Session(engine, autoflush=False, expire_on_commit=False) as session:
            unlimited(session)
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """One transaction, committed at the end of the block, rolled back on any error.

        Raises:
            DatabaseDown: the database cannot be reached or its lock was not free in time.
        """
        with _translated(), self._turn(), Session(self.writer, autoflush=False, expire_on_commit=False) as session:
            yield session
            session.commit()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if self._write_lock is None:
            yield
            return
        if not self._write_lock.acquire(timeout=_LOCK_S):
            raise _down()
        try:
            yield
        finally:
            self._write_lock.release()

    def now(self, session: Session) -> datetime:
        """The database's own time, the only clock that judges leases. With SQLite that is this host's clock."""
        if self._clock is not None:
            return self._clock.now()
        if self.is_sqlite:
            return datetime.now(UTC)
        moment = session.execute(select(func.clock_timestamp())).scalar_one()
        return moment.astimezone(UTC) if isinstance(moment, datetime) else datetime.now(UTC)

    def dispose(self) -> None:
        self.writer.dispose()
        self.reader.dispose()


# How long a writer waits for its turn, or anybody for a free connection, before the client is told to try again.
_LOCK_S: Final = 15.0
_LOOK_AGAIN_S: Final = 0.01
# A connection whose other end is gone (a pulled cable, a host that froze) must not hold a heartbeat for the quarter of
# an hour that TCP itself takes to give up; a Unix socket ignores these.
_DEAD_PEER: Final = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
# Texts of SQLite's driver, which has one class for an absent table and for a lock that was not free in time.
_SQLITE_DOWN = ("database is locked", "unable to open", "disk i/o error", "database or disk is full")


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except DBAPIError as error:
        if _is_outage(error):
            raise _down() from error
        raise
    except PoolTimeout as error:
        raise _down() from error


def _down() -> DatabaseDown:
    return DatabaseDown("The database does not answer; try again.", retry_after_s=2)


def _is_outage(error: DBAPIError) -> bool:
    """Whether trying again can help; a fault of a statement is a fault of this code and must not look like one."""
    if error.connection_invalidated:
        return True
    if not isinstance(error, OperationalError):
        return False
    text = str(error.orig).lower()
    is_sqlite = isinstance(error.orig, sqlite3.Error)
    return any(part in text for part in _SQLITE_DOWN) if is_sqlite else True


def _engine(url: str, *, read_only: bool, synchronous: str, pool_size: int) -> Engine:
    if not url.startswith("sqlite:"):
        engine = create_engine(
            url,
            pool_size=pool_size,
            max_overflow=pool_size,
            pool_pre_ping=True,
            hide_parameters=True,  # an error's text goes to the log, and specs and names are nobody's business there
            pool_timeout=_LOCK_S,
            connect_args={
                **_DEAD_PEER,
                "connect_timeout": 5,
                "options": "-c statement_timeout=60000 -c lock_timeout=15000"
                " -c idle_in_transaction_session_timeout=30000",
            },
        )
        return engine.execution_options(postgresql_readonly=True) if read_only else engine
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=pool_size,
        pool_timeout=_LOCK_S,
        hide_parameters=True,
        connect_args={"timeout": _LOCK_S},
    )

    def on_connect(connection: Any, _entry: ConnectionPoolEntry) -> None:  # noqa: ANN401 - the driver's own class
        # The driver must not open transactions by itself: the begin hook does.
        connection.isolation_level = None
        cursor = connection.cursor()
        _use_write_ahead_log(cursor)
        for pragma in (f"synchronous={synchronous}", "foreign_keys=ON", "cache_size=-16000"):
            cursor.execute(f"PRAGMA {pragma}")
        if read_only:
            cursor.execute("PRAGMA query_only=ON")
        cursor.close()

    if url != "sqlite:///:memory:":
        path = Path(url.removeprefix("sqlite:///"))
        event.listen(engine, "do_connect", lambda *_: _make_private(path))
    event.listen(engine, "connect", on_connect)
    # A deferred transaction that reads first and writes later is refused at once when another wrote in between.
    begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"
    event.listen(engine, "begin", lambda connection: connection.exec_driver_sql(begin))
    return engine


def _make_private(path: Path) -> None:
    """Make a new database's file for its owner alone, whatever the umask says: it holds data and keys of everybody.

    SQLite gives the files beside it the same mode. One that is there keeps what its owner gave it.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.suppress(OSError):  # it is there already, or SQLite itself will say why not
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _use_write_ahead_log(cursor: sqlite3.Cursor) -> None:
    """Switch a database to WAL, once for good; where processes open a new one at the same instant, each waits its turn.

    Unlike other statements this one does not wait for a lock by itself: SQLite answers "database is locked" at once
    where waiting could be a deadlock.
    """
    until = time.monotonic() + _LOCK_S
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(_LOOK_AGAIN_S)
        else:
            return


def lock_key(session: Session, key: int) -> None:
    """Make transactions that name the same key take turns. With SQLite every writing transaction already does."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": key})


def unlimited(session: Session) -> None:
    """Lift the limits on the time of statements and locks, for this transaction alone. SQLite has only one, for locks.

    For work that is right to take long, such as a migration: everything else is cut off after a minute.
    """
    if session.get_bind().dialect.name == "postgresql":
        for limit in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            session.execute(text(f"SET LOCAL {limit} = 0"))
