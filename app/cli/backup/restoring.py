"""Bring a backup back: files into the storage first, then all rows in one transaction, or nothing."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, Final

import orjson
from sqlalchemy import Table, select
from sqlalchemy.exc import DataError, IntegrityError, InterfaceError, ProgrammingError
from sqlalchemy.orm import Session

from app.cli.backup.archive import FORMAT, LATE, STORAGE, TABLES, Member, Reader
from app.cli.backup.errors import BackupUnusable, DatabaseInUse, damaged
from app.cli.backup.files import Arrivals
from app.cli.backup.rows import insert_rows, reflected
from app.cli.backup.settling import Settled, settle
from app.db import Database, unlimited
from app.migrations_runner import SchemaNotUsable, SchemaState, is_known, schema_state, upgrade_within
from app.storage import Storage
from app.storage.keys import InvalidKey

# A new service already has a project, a key and a worker: that is no reason to refuse.
_IN_USE: Final = {"jobs": "jobs", "datasets": "data sets", "bundles": "bundles", "holds": "holds"}
_SUFFIX: Final = ".jsonl"
# What a value that no column takes becomes, in either driver. Outages are OperationalErrors, and none of these.
_MISFITS: Final = (IntegrityError, DataError, InterfaceError, ProgrammingError, ValueError, TypeError, OverflowError)


@dataclass
class Restored:
    """What came back; `schema` is the backup's revision, before it was migrated to the newest one."""

    schema: str
    created_at: str
    rows: dict[str, int] = field(default_factory=dict)
    files: int = 0
    size_bytes: int = 0
    settled: Settled = field(default_factory=Settled)


@dataclass(frozen=True)
class Target:
    """Where to restore to; `storage` None leaves files out, `replace` deletes what the database has."""

    database: Database
    storage: Storage | None
    scratch: Path
    replace: bool = False


def restore(stream: BinaryIO, source: Path | None, target: Target, now: datetime) -> Restored:
    """Restore from a backup.

    Until its end and all its digests were seen no row is there, and no stored file is replaced; new files that no row
    names may be there, and `gc` finds them.

    Raises:
        BackupUnusable: it is none, it is damaged, or a newer version made it.
        DatabaseInUse: the database has jobs, data sets or holds, and `replace` was not asked for.
        SchemaNotUsable: a newer version has migrated the database.
    """
    with Reader(stream, source) as reader:
        manifest = reader.manifest()
        restored = Restored(_revision(manifest), str(manifest.get("created_at")))
        moment = _moment(restored.created_at)
        _check_target(target)
        arrivals = Arrivals(target.storage, target.scratch) if target.storage is not None else None
        first = _store_files(reader.members, arrivals, restored)
        with target.database.write() as session:
            unlimited(session)
            _clear(session)
            upgrade_within(session, restored.schema)
            _write_rows(session, chain(first, reader.members), restored)
            reader.check()
            upgrade_within(session)
            restored.settled = _settled(session, reader.missing, min(moment, now), now)
            if arrivals is not None:
                arrivals.replace()
    return restored


def _revision(manifest: dict[str, Any]) -> str:
    revision = str(manifest.get("schema", ""))
    if manifest.get("format") != FORMAT or not is_known(revision):
        version = str(manifest.get("version", "unknown"))[:40]
        raise BackupUnusable(
            f"The backup was made by Trainshed {version}, whose schema {revision[:40]!r} this version does not know; "
            "restore it with that version or a newer one."
        )
    return revision


def _moment(created_at: str) -> datetime:
    try:
        return datetime.fromisoformat(created_at).astimezone(UTC)
    except ValueError as error:
        raise damaged(f"it was made at {created_at[:40]!r}, which is no time") from error


def _check_target(target: Target) -> None:
    with target.database.read() as session:
        state = schema_state(session)
        if state is SchemaState.AHEAD:
            raise SchemaNotUsable(state)
        if target.replace or state is SchemaState.ABSENT:
            return
        present = reflected(session.connection())
        found = [what for name, what in _IN_USE.items() if name in present and _has_rows(session, present[name])]
    if found:
        raise DatabaseInUse(" and ".join(found))


def _has_rows(session: Session, table: Table) -> bool:
    return session.execute(select(1).select_from(table).limit(1)).first() is not None


def _store_files(members: Iterator[Member], arrivals: Arrivals | None, restored: Restored) -> list[Member]:
    """Store the files that come first; the member after them, if there is one."""
    for member in members:
        if not member.name.startswith(STORAGE):
            return [member]
        if arrivals is None:
            continue
        try:
            restored.size_bytes += arrivals.take(member.name.removeprefix(STORAGE), member.stream)
        except InvalidKey as error:
            raise damaged(f"'{member.name[:200]}' is no name of a stored file") from error
        restored.files += 1
    return []


def _settled(session: Session, missing: list[str], moment: datetime, now: datetime) -> Settled:
    try:
        return settle(session, missing, moment, now)
    except orjson.JSONDecodeError as error:
        raise damaged("a row has a text in it that cannot be read") from error


def _clear(session: Session) -> None:
    """Drop our tables, whatever schema they have; what else is in the database stays."""
    connection = session.connection()
    tables = reflected(connection)
    if tables:
        next(iter(tables.values())).metadata.drop_all(connection)
    connection.exec_driver_sql("DROP TABLE IF EXISTS alembic_version")


def _write_rows(session: Session, members: Iterator[Member], restored: Restored) -> None:
    connection = session.connection()
    tables = reflected(connection)
    for member in members:
        folder, _, name = member.name.removesuffix(_SUFFIX).partition("/")
        late = folder + "/" == LATE
        table = tables.get(name.partition("-")[0] if late else name)
        if table is None or folder + "/" not in (TABLES, LATE):
            raise damaged(f"'{member.name[:200]}' does not belong there")
        try:
            count = insert_rows(connection, table, member.stream, replace=late)
        except _MISFITS as error:
            # Before the digests are compared, which is at the end.
            raise damaged(f"a row of '{table.name}' does not fit the others or its columns") from error
        if not late:
            restored.rows[str(table.name)] = count
