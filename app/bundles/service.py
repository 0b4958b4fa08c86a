"""Bundles of a project: add, delete, and read what is in one.

Bytes and row are kept in step as those of data sets: a file is stored before its row exists and removed after its row
is gone, so a crash between the two leaves a file that nobody names, never a row without a file.
"""

import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.archives import Contents, Limits, check, contents, read_member
from app.bundles.models import Bundle
from app.bundles.names import BundleFormat, bundle_name, format_of
from app.bundles.repository import find_bundle, get_bundle
from app.db import Database, DatabaseDown
from app.errors import Conflict
from app.ids import new_id
from app.storage import Storage
from app.storage.keys import bundle_key

log = logging.getLogger(__name__)

_PREFIX: Final = "bun"
_SHOWN: Final = 5

Holders = Callable[[Session, str], Sequence[str]]
"""Given a bundle's id, the ids of the jobs that need it still. Jobs are a layer above this one."""

Also = Callable[[Session, str], None]
"""What else is to be written in the transaction that makes, or finds, the bundle of this id."""


class BundleInUse(Conflict):
    code = "bundle_in_use"

    def __init__(self, bundle_id: str, jobs: Sequence[str]) -> None:
        shown = ", ".join(jobs[:_SHOWN]) + (f" and {len(jobs) - _SHOWN} more" if len(jobs) > _SHOWN else "")
        super().__init__(f"Bundle '{bundle_id}' is needed by {shown}; cancel them or wait for their end.")
        self.jobs = list(jobs)


@dataclass(frozen=True)
class CheckedBundle:
    """An archive that was received, read through and found good."""

    path: Path
    name: str
    digest: str
    format: BundleFormat
    contents: Contents


def digest_of_file(path: Path) -> str:
    """SHA-256 in hex: what makes two bundles of a project the same."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_bundle(path: Path, name: str, digest: str, limits: Limits) -> CheckedBundle:
    """Read all of an archive; what passes can be unpacked by a worker.

    Raises:
        app.archives.NotAnArchive, UnsafeArchive, ArchiveTooLarge: it cannot be unpacked.
        InvalidBundle: there is no code in it.
    """
    found = check(path, limits)
    bundle_format = format_of(found, name)
    return CheckedBundle(path, bundle_name(name, bundle_format), digest, bundle_format, found)


def add_bundle(
    database: Database,
    storage: Storage,
    checked: CheckedBundle,
    *,
    project_id: str,
    user: str,
    now: datetime,
    also: Also | None = None,
) -> tuple[Bundle, bool]:
    """Store a checked archive and its row; whether it is new. The same bytes are stored once in a project.

    Raises:
        Exception: what `also` raised; there is neither file nor row.
        OSError: the storage could not take the file; there is no row.
    """
    bundle = _row(checked, project_id, user, now)
    storage.put(bundle.storage_key, checked.path)
    try:
        with database.write() as session:
            session.add(bundle)
            if also is not None:
                also(session, bundle.id)
    except DatabaseDown:
        # The connection may have broken after the commit, so the row may be there: it must not lose its file.
        raise
    except IntegrityError:
        storage.delete(bundle.storage_key)
        same = use_bundle(database, project_id, checked.digest, also)
        if same is None:
            raise
        return same, False
    except BaseException:
        storage.delete(bundle.storage_key)
        raise
    return bundle, True


def use_bundle(database: Database, project_id: str, digest: str, also: Also | None = None) -> Bundle | None:
    """The project's bundle with these bytes, if it has one.

    Raises:
        Exception: what `also` raised.
    """
    with database.write() as session:
        bundle = find_bundle(session, project_id, digest)
        if bundle is not None and also is not None:
            also(session, bundle.id)
        return bundle


def delete_bundle(database: Database, storage: Storage, project_id: str, bundle_id: str, *, holders: Holders) -> None:
    """Delete a bundle and its file.

    The row is locked first: a job that is being submitted now either is seen here, or does not find the bundle.

    Raises:
        NotFound: there is none with this id in this project.
        BundleInUse: jobs that are not over need it.
    """
    with database.write() as session:
        bundle = get_bundle(session, project_id, bundle_id, lock=True)
        jobs = holders(session, bundle_id)
        if jobs:
            raise BundleInUse(bundle_id, jobs)
        key = bundle.storage_key
        session.delete(bundle)
    try:
        storage.delete(key)
    except OSError:
        # The bundle is gone for everybody; only its space is not free yet.
        log.warning("the file %s of a deleted bundle is still in the storage", key, exc_info=True)


def bundle_file(storage: Storage, bundle: Bundle, name: str, limit: int) -> bytes:
    """The bytes of one file of a bundle.

    Raises:
        app.archives.NoSuchMember: the bundle has no file of that name.
        app.archives.ArchiveTooLarge: it has more than `limit` bytes.
        app.storage.MissingObject, OSError: the storage does not have the bundle (any more), or failed.
    """
    with storage.open(bundle.storage_key) as file:
        return read_member(file, name, limit)


def bundle_contents(storage: Storage, bundle: Bundle) -> Contents:
    """The files of a bundle by the archive's directory, as it was accepted whatever the limits are today.

    Raises:
        app.storage.MissingObject, OSError: the storage does not have the bundle (any more), or failed.
    """
    with storage.open(bundle.storage_key) as file:
        return contents(file, accepted_limits(bundle))


def accepted_limits(bundle: Bundle) -> Limits:
    """Just what a bundle that was accepted needs; `files` counts no folders, which an archive may have more of."""
    size = max(bundle.unpacked_bytes, 1)
    return Limits(entries=bundle.files * 65, total_bytes=size, file_bytes=size, ratio=size)


def _row(checked: CheckedBundle, project_id: str, user: str, now: datetime) -> Bundle:
    bundle_id = new_id(_PREFIX)
    return Bundle(
        id=bundle_id,
        project_id=project_id,
        digest=checked.digest,
        name=checked.name,
        format=checked.format,
        size_bytes=checked.path.stat().st_size,
        unpacked_bytes=checked.contents.unpacked_bytes,
        files=len(checked.contents.files),
        storage_key=bundle_key(bundle_id),
        created_by=user,
        created_at=now,
    )
