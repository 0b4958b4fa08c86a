"""Bring a database to the newest schema, one process at a time.

The migration runs in one transaction that first takes a lock: PostgreSQL an advisory one, SQLite its write lock, which
the writer's `begin` hook already takes. Several processes that start at once therefore migrate once.
"""

from pathlib import Path
from typing import Final

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.orm import Session

from app.db import Database, lock_key, unlimited

_MIGRATION_LOCK: Final = 7_301_001


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
            lock_key(session, _MIGRATION_LOCK)
            config = _config()
            config.attributes["connection"] = session.connection()
            command.upgrade(config, "head")
    finally:
        database.dispose()


def is_current(session: Session) -> bool:
    """Whether the schema is the one this code was written for."""
    if not inspect(session.connection()).has_table("alembic_version"):
        return False
    present = session.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    return set(present) == set(ScriptDirectory.from_config(_config()).get_heads())


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(script_location()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config
