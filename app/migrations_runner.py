"""Bring a database to the newest schema, one process at a time.

The migration runs in one transaction that first takes a lock: PostgreSQL an advisory one, SQLite its write lock, which
the writer's `begin` hook already takes. Several processes that start at once therefore migrate once.
"""

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Final

import structlog
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.orm import Session

from app.clock import Clock
from app.db import Database, DatabaseDown, lock_key, unlimited
from app.errors import TrainshedError

log = structlog.get_logger("schema")

_MIGRATION_LOCK: Final = 7_301_001
_LOOK_S: Final = 1.0
_SILENT: Final = "database_does_not_answer"


class SchemaState(StrEnum):
    """The schema of a database, as seen by this code. `AHEAD`: a newer version of Trainshed has migrated it."""

    CURRENT = "current"
    BEHIND = "behind"
    AHEAD = "ahead"
    ABSENT = "absent"

    @property
    def message(self) -> str:
        return _MESSAGES[self]


_MESSAGES: Final = {
    SchemaState.CURRENT: "The database has this version's schema.",
    SchemaState.BEHIND: "The database's schema is older than this version needs; run `trainshed migrate`.",
    SchemaState.AHEAD: "The database's schema is newer than this version of Trainshed; run the version that made it.",
    SchemaState.ABSENT: "The database has no tables of Trainshed yet; run `trainshed migrate`.",
}


class SchemaNotUsable(TrainshedError):
    """The schema is not the one that this code needs, and waiting did not help or cannot."""

    code = "schema_not_current"

    def __init__(self, state: SchemaState) -> None:
        super().__init__(state.message)
        self.state = state


def script_location() -> Path:
    """The folder of the migrations: beside this package in a checkout, inside it in an installed wheel."""
    inside = Path(__file__).parent / "migrations"
    return inside if inside.is_dir() else Path(__file__).parents[1] / "alembic"


def upgrade(url: str) -> None:
    """Migrate to the newest revision; safe to call from several processes at once."""
    database = Database(url)
    try:
        with database.write() as session:
            # A large table may take minutes, and so may whoever migrates first.
            unlimited(session)
            upgrade_within(session)
    finally:
        database.dispose()


def upgrade_within(session: Session, revision: str = "head") -> None:
    """Migrate inside a transaction; others that would migrate wait for its end."""
    lock_key(session, _MIGRATION_LOCK)
    config = _config()
    config.attributes["connection"] = session.connection()
    command.upgrade(config, revision)


def newest_revision() -> str:
    """The revision that this code was written for."""
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def is_known(revision: str) -> bool:
    """Whether this code has that revision's migration: it has all that are older than its own."""
    return any(script.revision == revision for script in ScriptDirectory.from_config(_config()).walk_revisions())


def is_current(session: Session) -> bool:
    """Whether the schema is the one this code was written for."""
    return schema_state(session) is SchemaState.CURRENT


def schema_state(session: Session) -> SchemaState:
    """Compare the database's revision with those that this code knows; one that it does not know is a newer one."""
    if not inspect(session.connection()).has_table("alembic_version"):
        return SchemaState.ABSENT
    present = set(session.execute(text("SELECT version_num FROM alembic_version")).scalars())
    if not present:
        return SchemaState.ABSENT
    scripts = ScriptDirectory.from_config(_config())
    if present == set(scripts.get_heads()):
        return SchemaState.CURRENT
    known = {script.revision for script in scripts.walk_revisions()}
    return SchemaState.BEHIND if present <= known else SchemaState.AHEAD


def wait_for_schema(database: Database, clock: Clock, limit_s: float, pause: Callable[[float], bool]) -> bool:
    """Return True once the database has this code's schema, False when `pause` says that it is time to stop.

    Somebody else may be migrating: an absent or old schema is waited for up to `limit_s`, counted from the first
    answer of the database, and said once. A database that does not answer is waited for without a limit.

    Args:
        database: read only, about once a second.
        clock: its boot clock measures the wait.
        limit_s: seconds.
        pause: waits so many seconds, or less when it is time to stop, and then says True.

    Raises:
        SchemaNotUsable: the schema is newer than this code, or was still not there after `limit_s`.
    """
    said: SchemaState | str | None = None
    first_ns: int | None = None
    while True:
        state = _look(database)
        if state is SchemaState.CURRENT:
            return True
        if state is None and said != _SILENT:
            log.warning(_SILENT)
            said = _SILENT
        if state is not None:
            first_ns = clock.boot_ns() if first_ns is None else first_ns
            if state is SchemaState.AHEAD or clock.boot_ns() - first_ns >= limit_s * 1_000_000_000:
                raise SchemaNotUsable(state)
            if said is not state:
                log.warning("schema_not_ready", state=state.value, hint=state.message, waits_s=limit_s)
                said = state
        if pause(_LOOK_S):
            return False


def _look(database: Database) -> SchemaState | None:
    """The state now; None while the database does not answer."""
    try:
        with database.read() as session:
            return schema_state(session)
    except DatabaseDown:
        return None


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
