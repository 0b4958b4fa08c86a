"""How migrations reach the database: the runner's connection, or for people `TRAINSHED_DATABASE_URL`."""

import os
from typing import Any, Literal

from alembic import context
from sqlalchemy import Connection

import app.artifacts.models
import app.bundles.models
import app.checkpoints.models
import app.holds.models
import app.jobs.models
import app.predictions.models  # noqa: F401 - every table must be known
from app.db import Base, Database, JsonText, UtcDateTime


def _render(kind: str, item: Any, _context: Any) -> str | Literal[False]:  # noqa: ANN401 - Alembic's own signature
    if kind == "type" and isinstance(item, JsonText | UtcDateTime):
        return f"{type(item).__name__}()"
    return False


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        render_as_batch=True,
        render_item=_render,
        compare_type=True,
    )
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    _run(given)
else:
    database = Database(os.environ.get("TRAINSHED_DATABASE_URL", "sqlite:///.trainshed/trainshed.db"))
    with database.write() as session:
        _run(session.connection())
    database.dispose()
