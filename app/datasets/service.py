"""Data sets of a project: add, register, find, delete; the one place that turns `data.source` into a table's schema.

Bytes and row are kept in step without a transaction that waits for a disk: a file is stored before its row exists and
removed after its row is gone, so a crash between the two leaves a file that nobody names, never a row without a file.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import Select, select
from sqlalchemy.orm import Session, defer

from app.datasets.models import Dataset
from app.datasets.names import NAME_LIMIT, clean_name
from app.datasets.roots import SCHEME, root_of
from app.db import Database, DatabaseDown
from app.errors import Conflict, NotFound
from app.ids import is_id, new_id
from app.spec import InvalidSpec, SpecProblem, TableSchema
from app.spec.nearest import nearest_word
from app.storage import Storage
from app.storage.keys import dataset_key
from app.tables import BUILTIN, TableFormat, builtin_schema

log = logging.getLogger(__name__)

_PREFIX: Final = "ds"
_SHOWN: Final = 5

Holders = Callable[[Session, str], Sequence[str]]
"""Given a data set's id, the ids of the jobs that need it. Jobs that are over let go of it in the same call, since
their rows refer to it. Jobs are a layer above this one, so the caller brings this function."""

Also = Callable[[Session, str], None]
"""What else is to be written in the transaction that makes the data set of this id."""


class DatasetInUse(Conflict):
    def __init__(self, dataset_id: str, jobs: Sequence[str]) -> None:
        shown = ", ".join(jobs[:_SHOWN]) + (f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else "")
        super().__init__(f"Data set '{dataset_id}' is needed by {shown}; cancel them or wait for their end.")
        self.dataset_id = dataset_id
        self.jobs = list(jobs)


class UnknownDataset(InvalidSpec):
    """`data.source` names nothing that this project has; the one problem has the nearest name."""


@dataclass(frozen=True)
class Upload:
    """A table that was received and checked: its file, what the client called it, and what was found in it."""

    path: Path
    name: str
    table: TableSchema
    format: TableFormat = "csv"


@dataclass(frozen=True)
class InPlace:
    """A table that lies in a data root and was checked there: its address, its facts, and what was found in it."""

    uri: str
    name: str
    table: TableSchema
    format: TableFormat
    size_bytes: int
    digest: str
    modified_at: datetime


class Source(NamedTuple):
    """What `data.source` means: the data set's id (None for a built-in one), its table, the data root it lies in."""

    dataset_id: str | None
    table: TableSchema
    root: str | None = None


def add_dataset(
    database: Database,
    storage: Storage,
    upload: Upload,
    *,
    project_id: str,
    user: str,
    now: datetime,
    also: Also | None = None,
) -> Dataset:
    """Store a checked file and its row. The same file uploaded twice gives two data sets, with equal digests.

    Raises:
        Exception: what `also` raised; there is neither file nor row.
        OSError: the storage could not take the file; there is no row.
    """
    dataset_id = new_id(_PREFIX)
    key = dataset_key(dataset_id)
    dataset = Dataset(
        id=dataset_id,
        project_id=project_id,
        name=clean_name(upload.name, f"dataset.{upload.format}"),
        format=upload.format,
        state="ready",
        rows=upload.table.rows,
        size_bytes=upload.path.stat().st_size,
        digest=_digest(upload.path),
        storage_key=key,
        table=upload.table.model_dump(mode="json"),
        created_by=user,
        created_at=now,
    )
    storage.put(key, upload.path)
    try:
        with database.write() as session:
            session.add(dataset)
            if also is not None:
                also(session, dataset_id)
    except DatabaseDown:
        # The connection may have broken after the commit, so the row may be there: it must not lose its file.
        raise
    except BaseException:
        storage.delete(key)
        raise
    return dataset


def register_dataset(
    database: Database, found: InPlace, *, project_id: str, user: str, now: datetime, also: Also | None = None
) -> Dataset:
    """Write the row of a table that stays where it is.

    Raises:
        Exception: what `also` raised; there is no row.
    """
    last = found.uri.rpartition("/")[2]
    dataset = Dataset(
        id=new_id(_PREFIX),
        project_id=project_id,
        name=clean_name(found.name or last, f"dataset.{found.format}"),
        format=found.format,
        state="ready",
        rows=found.table.rows,
        size_bytes=found.size_bytes,
        digest=found.digest,
        storage_key="",
        uri=found.uri,
        modified_at=found.modified_at,
        table=found.table.model_dump(mode="json"),
        created_by=user,
        created_at=now,
    )
    with database.write() as session:
        session.add(dataset)
        if also is not None:
            also(session, dataset.id)
    return dataset


def get_dataset(session: Session, project_id: str, dataset_id: str) -> Dataset:
    """The data set.

    Raises:
        NotFound: there is none with this id in this project.
    """
    row = session.scalar(_mine(project_id, dataset_id))
    if row is None:
        raise NotFound("data set", dataset_id)
    return row


def list_datasets(
    session: Session, project_id: str, *, after: str | None = None, limit: int = 50, descending: bool = True
) -> list[Dataset]:
    """A page of the project's data sets by id, which is by time; without their tables, which can have megabytes."""
    query = select(Dataset).options(defer(Dataset.table, raiseload=True)).where(Dataset.project_id == project_id)
    if after is not None:
        query = query.where(Dataset.id < after if descending else Dataset.id > after)
    return list(session.scalars(query.order_by(Dataset.id.desc() if descending else Dataset.id.asc()).limit(limit)))


def delete_dataset(database: Database, storage: Storage, project_id: str, dataset_id: str, *, holders: Holders) -> None:
    """Delete a data set and its file; one that is read in place is only forgotten.

    The row is locked first: a job that is being submitted now either is seen here, or its insert fails.

    Raises:
        NotFound: there is none with this id in this project.
        DatasetInUse: jobs that are not over need it.
    """
    with database.write() as session:
        dataset = session.scalar(_mine(project_id, dataset_id).with_for_update())
        if dataset is None:
            raise NotFound("data set", dataset_id)
        jobs = holders(session, dataset_id)
        if jobs:
            raise DatasetInUse(dataset_id, jobs)
        key = dataset.storage_key
        session.delete(dataset)
    if not key:
        return
    try:
        storage.delete(key)
    except OSError:
        # The data set is gone for everybody; only its space is not free yet.
        log.warning("the file %s of a deleted data set is still in the storage", key, exc_info=True)


def source_schema(session: Session, project_id: str, source: str) -> Source:
    """What `data.source` means.

    Raises:
        UnknownDataset: it means nothing here.
    """
    if source in BUILTIN:
        return Source(None, builtin_schema(source))
    row = session.scalar(_mine(project_id, source)) if is_id(_PREFIX, source) else None
    if row is None:
        raise _unknown(session, project_id, source)
    return Source(row.id, TableSchema.model_validate(row.table), root_of(row.uri))


def data_root(session: Session, dataset_id: str | None) -> str | None:
    """The data root that a job's table lies in; None when it is not read in place."""
    return None if dataset_id is None else root_of(session.scalar(select(Dataset.uri).where(Dataset.id == dataset_id)))


def _mine(project_id: str, dataset_id: str) -> Select[Dataset]:
    return select(Dataset).where(Dataset.id == dataset_id, Dataset.project_id == project_id)


def _unknown(session: Session, project_id: str, source: str) -> UnknownDataset:
    if is_id(_PREFIX, source):
        said, nearest = f"There is no data set '{source}' in this project", None
    else:
        said, nearest = f"There is no data set '{source[:NAME_LIMIT]}'", _nearest(session, project_id, source)
    if source.startswith(SCHEME):
        return _unregistered(nearest)
    advice = f"did you mean '{nearest}'?" if nearest else "upload one first, or use a built-in one."
    sentence = f"{said}; {advice} Built in are {', '.join(BUILTIN)}; uploaded ones are named by their id, ds_…"
    return UnknownDataset([SpecProblem("/data/source", sentence, json.dumps(nearest) if nearest else None)])


def _unregistered(dataset_id: str | None) -> UnknownDataset:
    advice = (
        'register it (POST /v1/datasets with {"uri": "root://…"}), and use the id of the answer'
        if dataset_id is None
        else f"use its id, '{dataset_id}'"
    )
    sentence = f"A file in a data root is named by the id that it was registered under: {advice}."
    return UnknownDataset([SpecProblem("/data/source", sentence, json.dumps(dataset_id) if dataset_id else None)])


def _nearest(session: Session, project_id: str, source: str) -> str | None:
    """The id of the newest data set that has this name or address, else a built-in name like it."""
    wanted = Dataset.uri == source if source.startswith(SCHEME) else Dataset.name == clean_name(source)
    named = select(Dataset.id).where(Dataset.project_id == project_id, wanted)
    found = session.scalar(named.order_by(Dataset.id.desc()).limit(1))
    return found or (None if source.startswith(SCHEME) else nearest_word(source, BUILTIN))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
