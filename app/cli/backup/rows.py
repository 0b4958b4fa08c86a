"""Rows as lines of JSON, the same from both databases: a line with the names of the columns, then a list per row."""

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson
from sqlalchemy import (
    ColumnElement,
    Connection,
    DateTime,
    MetaData,
    Table,
    Text,
    bindparam,
    delete,
    insert,
    select,
    type_coerce,
)
from sqlalchemy.orm import Session

import app.artifacts.models
import app.bundles.models
import app.checkpoints.models
import app.holds.models
import app.jobs.models
import app.predictions.models  # noqa: F401 - every table must be known
from app.cli.backup.errors import damaged
from app.db import Base, JsonText

LEFT_OUT: Final = frozenset({"leases", "model_tasks"})
"""Tables whose rows mean nothing later: who holds a device now, and questions that have a deadline of minutes."""
_AT_ONCE: Final = 200
_BATCH_BYTES: Final = 4 * 1024 * 1024
_MOST_LINE: Final = 256 * 1024 * 1024
"""Far more than any row has; a longer line is cut off, and is no JSON then."""


def tables() -> list[Table]:
    """What is backed up, each table after those that it refers to."""
    return [table for table in Base.metadata.sorted_tables if table.name not in LEFT_OUT]


def write_table(session: Session, table: Table, path: Path, *conditions: ColumnElement[bool]) -> int:
    """Write the rows as lines into a new file; answers how many. JSON columns stay the text that they are."""
    columns = [type_coerce(column, Text) if isinstance(column.type, JsonText) else column for column in table.columns]
    query = select(*columns).where(*conditions).order_by(*table.primary_key)
    count = 0
    with path.open("xb") as file:
        file.write(orjson.dumps([column.name for column in table.columns]) + b"\n")
        for row in session.execute(query, execution_options={"yield_per": _AT_ONCE}):
            file.write(orjson.dumps(list(row)) + b"\n")
            count += 1
    return count


def reflected(connection: Connection) -> dict[str, Table]:
    """Our tables as they are in this database now, which may have an older schema than the models."""
    metadata = MetaData()
    ours = set(Base.metadata.tables)
    metadata.reflect(connection, only=lambda name, _: name in ours)
    return dict(metadata.tables)


def insert_rows(connection: Connection, table: Table, stream: BinaryIO, *, replace: bool = False) -> int:
    """Insert lines as `write_table` writes them; answers how many. `replace` deletes rows with the same keys before.

    Raises:
        BackupUnusable: they are not such lines, or the table has no such column.
    """
    lines = (_decoded(line, table) for line in iter(lambda: stream.readline(_MOST_LINE), b""))
    names = next(lines, None)
    if names is None or not set(names) <= set(table.columns.keys()):
        raise damaged(f"the columns of '{table.name}' are not those of its schema")
    times = [name for name in names if isinstance(table.columns[name].type, DateTime)]
    count = 0
    for batch in _batches(lines):
        rows = [_row(names, times, values, table) for values in batch]
        if replace:
            keys = [column == bindparam(f"key_{column.name}") for column in table.primary_key]
            named = [{f"key_{column.name}": row[column.name] for column in table.primary_key} for row in rows]
            connection.execute(delete(table).where(*keys), named)
        connection.execute(insert(table), rows)
        count += len(rows)
    return count


def _batches(lines: Iterator[list[Any]]) -> Iterator[list[list[Any]]]:
    batch: list[list[Any]] = []
    size = 0
    for values in lines:
        batch.append(values)
        size += sum(len(value) for value in values if isinstance(value, str))
        if len(batch) >= _AT_ONCE or size > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _row(names: list[str], times: list[str], values: list[Any], table: Table) -> dict[str, Any]:
    if len(values) != len(names):
        raise damaged(f"a row of '{table.name}' has {len(values)} values for {len(names)} columns")
    row = dict(zip(names, values, strict=True))
    for name in times:
        row[name] = None if row[name] is None else datetime.fromisoformat(row[name])
    return row


def _decoded(line: bytes, table: Table) -> list[Any]:
    try:
        values = orjson.loads(line)
    except ValueError:
        values = None
    if not isinstance(values, list):
        raise damaged(f"a row of '{table.name}' cannot be read")
    return values
