"""Bundles in the database and the storage: each once in a project, and never a row without its file."""

import hashlib
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select
from sqlalchemy.orm import Session

from app.archives import ArchiveTooLarge, Limits, NoSuchMember, NotAnArchive, UnsafeArchive
from app.bundles.models import Bundle
from app.bundles.names import InvalidBundle
from app.bundles.repository import find_bundle, get_bundle, list_bundles
from app.bundles.schemas import MOST_FILES, bundle_json, bundle_with_files
from app.bundles.service import (
    BundleInUse,
    CheckedBundle,
    accepted_limits,
    add_bundle,
    bundle_contents,
    bundle_file,
    check_bundle,
    delete_bundle,
    digest_of_file,
    use_bundle,
)
from app.db import Database, DatabaseDown
from app.errors import NotFound
from app.storage import LocalStorage, MissingObject
from tests.archives.making import Entry, plain, write
from tests.fakes import START
from tests.rows import add_project

FILES = {"train.py": b"print('{}')\n", "package/__init__.py": b"", "requirements.txt": b"rich\n"}


def nobody(_session: Session, _bundle_id: str) -> list[str]:
    return []


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "storage")


@pytest.fixture
def project_id(database: Database) -> str:
    with database.write() as session:
        return add_project(session).id


@pytest.fixture
def checked(tmp_path: Path) -> CheckedBundle:
    return checked_at(plain(tmp_path / "code.zip", FILES))


def checked_at(path: Path, limits: Limits | None = None) -> CheckedBundle:
    return check_bundle(path, path.name, digest_of_file(path), limits or Limits())


class TestCheck:
    def test_kind_name_digest_and_contents(self, tmp_path: Path, checked: CheckedBundle) -> None:
        path = tmp_path / "code.zip"
        assert checked.digest == hashlib.sha256(path.read_bytes()).hexdigest()
        assert (checked.name, checked.format, checked.path) == ("code.zip", "zip", path)
        assert checked.contents.unpacked_bytes == sum(map(len, FILES.values()))

    def test_what_no_worker_could_unpack_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "a.zip").write_bytes(b"text")
        with pytest.raises(NotAnArchive):
            checked_at(tmp_path / "a.zip")
        with pytest.raises(UnsafeArchive):
            checked_at(write(tmp_path / "b.zip", Entry("../x")))
        with pytest.raises(ArchiveTooLarge):
            checked_at(plain(tmp_path / "c.zip", FILES), Limits(entries=2))
        with pytest.raises(InvalidBundle):
            checked_at(write(tmp_path / "d.zip"))


class TestAdd:
    def test_a_new_one_has_a_row_and_a_file(
        self, database: Database, storage: LocalStorage, project_id: str, checked: CheckedBundle
    ) -> None:
        bundle, is_new = add_bundle(database, storage, checked, project_id=project_id, user="ada", now=START)
        assert is_new
        assert storage.list() == [bundle.storage_key] == [f"bundles/{bundle.id}"]
        with database.read() as session:
            row = get_bundle(session, project_id, bundle.id)
            assert bundle_json(row) == bundle_json(bundle)
            assert (row.files, row.unpacked_bytes, row.size_bytes) == (3, 17, checked.path.stat().st_size)
        assert bundle_file(storage, bundle, "requirements.txt", 100) == b"rich\n"

    def test_the_same_bytes_are_kept_once_in_a_project_and_once_in_another(
        self, database: Database, storage: LocalStorage, project_id: str, checked: CheckedBundle
    ) -> None:
        with database.write() as session:
            other = add_project(session, "whales").id
        made = [
            add_bundle(database, storage, replace(checked, name=name), project_id=owner, user="ada", now=START)
            for owner, name in ((project_id, "a.zip"), (project_id, "b.zip"), (other, "c.zip"))
        ]
        assert [is_new for _, is_new in made] == [True, False, True]
        assert made[0][0].id == made[1][0].id != made[2][0].id
        assert storage.list() == sorted(bundle.storage_key for bundle, is_new in made if is_new)

    def test_of_many_at_once_one_is_kept(
        self, database: Database, storage: LocalStorage, project_id: str, checked: CheckedBundle
    ) -> None:
        found: list[str] = []
        start = threading.Barrier(4)

        def add() -> None:
            start.wait()
            found.append(add_bundle(database, storage, checked, project_id=project_id, user="ada", now=START)[0].id)

        threads = [threading.Thread(target=add) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 4
        assert len(set(found)) == 1
        assert storage.list() == [f"bundles/{found[0]}"]

    def test_what_is_written_with_it_is_undone_with_it(
        self, database: Database, storage: LocalStorage, project_id: str, checked: CheckedBundle
    ) -> None:
        def fail(_session: Session, _bundle_id: str) -> None:
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            add_bundle(database, storage, checked, project_id=project_id, user="ada", now=START, also=fail)
        assert storage.list() == []
        with database.read() as session:
            assert session.scalars(select(Bundle)).all() == []

    def test_a_row_that_may_be_there_keeps_its_file(
        self, database: Database, storage: LocalStorage, project_id: str, checked: CheckedBundle
    ) -> None:
        def fail(_session: Session, _bundle_id: str) -> None:
            raise DatabaseDown("the connection broke")

        with pytest.raises(DatabaseDown):
            add_bundle(database, storage, checked, project_id=project_id, user="ada", now=START, also=fail)
        assert len(storage.list("bundles")) == 1

    def test_a_storage_that_is_full_leaves_no_row(
        self, database: Database, project_id: str, checked: CheckedBundle, tmp_path: Path
    ) -> None:
        storage = LocalStorage(tmp_path / "full")
        (tmp_path / "full/bundles").write_text("a file is in the way")
        with pytest.raises(OSError, match="directory"):
            add_bundle(database, storage, checked, project_id=project_id, user="ada", now=START)
        with database.read() as session:
            assert session.scalars(select(Bundle)).all() == []


class TestFind:
    def test_by_digest_and_only_in_its_project(
        self, database: Database, storage: LocalStorage, project_id: str, checked: CheckedBundle
    ) -> None:
        bundle, _ = add_bundle(database, storage, checked, project_id=project_id, user="ada", now=START)
        seen: list[str] = []
        found = use_bundle(database, project_id, checked.digest, lambda _session, bundle_id: seen.append(bundle_id))
        assert found is not None
        assert seen == [found.id] == [bundle.id]
        assert use_bundle(database, project_id, "0" * 64, lambda *_: seen.append("never")) is None
        assert use_bundle(database, "prj_other", checked.digest) is None
        assert seen == [bundle.id]
        with database.read() as session:
            assert find_bundle(session, "prj_other", checked.digest) is None
            with pytest.raises(NotFound):
                get_bundle(session, "prj_other", bundle.id)
            assert list_bundles(session, "prj_other") == []

    def test_pages_by_id(self, database: Database, storage: LocalStorage, project_id: str, tmp_path: Path) -> None:
        made = []
        for number in range(3):
            path = plain(tmp_path / f"{number}.zip", {"a.py": b"%d" % number})
            made.append(add_bundle(database, storage, checked_at(path), project_id=project_id, user="a", now=START)[0])
        ids = [bundle.id for bundle in made]
        with database.read() as session:
            assert [row.id for row in list_bundles(session, project_id)] == ids[::-1]
            assert [row.id for row in list_bundles(session, project_id, after=ids[2], limit=1)] == [ids[1]]
            assert [row.id for row in list_bundles(session, project_id, after=ids[0], descending=False)] == ids[1:]
            assert [row.id for row in list_bundles(session, project_id, digest=made[1].digest)] == [ids[1]]


class TestDelete:
    def test_row_and_file_go(
        self, database: Database, storage: LocalStorage, project_id: str, checked: CheckedBundle
    ) -> None:
        bundle, _ = add_bundle(database, storage, checked, project_id=project_id, user="ada", now=START)
        delete_bundle(database, storage, project_id, bundle.id, holders=nobody)
        assert storage.list() == []
        with pytest.raises(NotFound):
            delete_bundle(database, storage, project_id, bundle.id, holders=nobody)

    def test_not_while_a_job_needs_it(
        self, database: Database, storage: LocalStorage, project_id: str, checked: CheckedBundle
    ) -> None:
        bundle, _ = add_bundle(database, storage, checked, project_id=project_id, user="ada", now=START)
        jobs = [f"job_{number}" for number in range(7)]
        with pytest.raises(BundleInUse, match="job_4 and 2 more") as caught:
            delete_bundle(database, storage, project_id, bundle.id, holders=lambda *_: jobs)
        assert caught.value.jobs == jobs
        assert storage.list() == [bundle.storage_key]

    def test_not_by_another_project(
        self, database: Database, storage: LocalStorage, project_id: str, checked: CheckedBundle
    ) -> None:
        bundle, _ = add_bundle(database, storage, checked, project_id=project_id, user="ada", now=START)
        with pytest.raises(NotFound):
            delete_bundle(database, storage, "prj_other", bundle.id, holders=nobody)
        assert storage.list() == [bundle.storage_key]

    def test_a_storage_that_fails_keeps_its_file_for_gc(
        self, database: Database, storage: LocalStorage, project_id: str, checked: CheckedBundle
    ) -> None:
        bundle, _ = add_bundle(database, storage, checked, project_id=project_id, user="ada", now=START)

        class Stuck:
            def delete(self, key: str) -> None:
                raise OSError(30, f"Read-only file system: {key}")

        delete_bundle(database, Stuck(), project_id, bundle.id, holders=nobody)  # type: ignore[arg-type] # the one call
        with database.read() as session:
            assert session.scalars(select(Bundle)).all() == []
        assert storage.list() == [bundle.storage_key]


class TestInside:
    def test_one_file_of_it(
        self, database: Database, storage: LocalStorage, project_id: str, checked: CheckedBundle
    ) -> None:
        bundle, _ = add_bundle(database, storage, checked, project_id=project_id, user="ada", now=START)
        with pytest.raises(NoSuchMember):
            bundle_file(storage, bundle, "train.txt", 100)
        with pytest.raises(ArchiveTooLarge):
            bundle_file(storage, bundle, "train.py", 3)
        storage.delete(bundle.storage_key)
        with pytest.raises(MissingObject):
            bundle_file(storage, bundle, "train.py", 100)

    def test_all_its_files_also_when_the_limits_are_lower_now(
        self, database: Database, storage: LocalStorage, project_id: str, tmp_path: Path
    ) -> None:
        deep = "/".join("abcdefgh")
        path = plain(tmp_path / "code.zip", {f"{deep}/{number}.py": bytes(500_000) for number in range(40)})
        bundle, _ = add_bundle(
            database, storage, checked_at(path, Limits(ratio=2000)), project_id=project_id, user="a", now=START
        )
        assert len(bundle_contents(storage, bundle).files) == 40
        assert accepted_limits(bundle).total_bytes == bundle.unpacked_bytes == 20_000_000

    @pytest.mark.parametrize(("files", "complete"), [(MOST_FILES, True), (MOST_FILES + 1, False)])
    def test_the_answer_lists_so_many_by_name(
        self, database: Database, storage: LocalStorage, project_id: str, tmp_path: Path, files: int, *, complete: bool
    ) -> None:
        path = plain(tmp_path / "code.zip", {f"{number:05}.py": b"x" for number in reversed(range(files))})
        bundle, _ = add_bundle(database, storage, checked_at(path), project_id=project_id, user="a", now=START)
        shown = bundle_with_files(bundle, bundle_contents(storage, bundle))
        assert [entry["name"] for entry in shown["file_list"]] == [f"{number:05}.py" for number in range(MOST_FILES)]
        assert (shown["file_list_complete"], shown["files"]) == (complete, files)
