"""What must not be restored is not, and then nothing is changed; what must not be overwritten is kept."""

import errno
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from app.cli.backup.archive import CONTENTS, Writer
from app.cli.backup.errors import BackupFailed, BackupUnusable, DatabaseInUse, NotAFile
from app.cli.backup.making import new_file
from app.db import Database
from app.migrations_runner import SchemaNotUsable, SchemaState, schema_state, upgrade
from app.storage import LocalStorage
from tests.cli.backup.service import Service, all_rows, bring_back, opened
from tests.rows import add_bundle, add_dataset, add_project

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

Change = Callable[[dict[str, bytes]], None]


@pytest.fixture
def backup(service: Service, file: Path) -> Path:
    service.backup(file)
    return file


def members_of(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}  # type: ignore[union-attr]


def rewritten(path: Path, change: Change, *, digests: bool = True) -> Path:
    """The same archive with other members; `digests` makes the contents fit them again, as a forger would."""
    members = members_of(path)
    change(members)
    fresh = path.with_name("changed.tar")
    with fresh.open("wb") as stream:
        writer = Writer(stream)
        contents = members.pop(CONTENTS)
        for name, content in members.items():
            writer.add(name, io.BytesIO(content), len(content))
        if digests:
            writer.finish(missing=[])
        else:
            writer.add(CONTENTS, io.BytesIO(contents), len(contents))
            writer._tar.close()
    return fresh


def state_of(url: str) -> SchemaState:
    with opened(url) as database, database.read() as session:
        return schema_state(session)


class TestDamage:
    @pytest.mark.parametrize("kept", [0.0, 0.02, 0.5, 0.9, 0.995])
    def test_a_backup_that_is_cut_off_restores_no_row(
        self, backup: Path, empty_url: str, other_storage: LocalStorage, kept: float
    ) -> None:
        content = backup.read_bytes()
        # A tar file ends with zeros, which nothing needs.
        backup.write_bytes(content[: int(len(content.rstrip(b"\0")) * kept)])
        with pytest.raises(BackupUnusable):
            bring_back(backup, empty_url, other_storage)
        assert state_of(empty_url) is SchemaState.ABSENT

    @pytest.mark.parametrize("prefix", ["manifest.json", "storage/artifacts/", "tables/jobs", "tables/journal"])
    def test_a_changed_byte_is_found(
        self, backup: Path, empty_url: str, other_storage: LocalStorage, prefix: str
    ) -> None:
        def change(members: dict[str, bytes]) -> None:
            name = next(name for name in members if name.startswith(prefix))
            # A letter of a name, a byte of a model: nothing that reading would stumble over.
            members[name] = members[name].replace(b"sion", b"sioN") if b"sion" in members[name] else b"[]\n"

        with pytest.raises(BackupUnusable, match=r"damaged|no backup"):
            bring_back(rewritten(backup, change, digests=False), empty_url, other_storage)
        assert state_of(empty_url) is SchemaState.ABSENT

    def test_a_member_that_is_not_there_is_missed(
        self, backup: Path, empty_url: str, other_storage: LocalStorage
    ) -> None:
        changed = rewritten(backup, lambda members: members.__delitem__("tables/job_tags.jsonl"), digests=False)
        with pytest.raises(BackupUnusable, match=r"tables/job_tags\.jsonl"):
            bring_back(changed, empty_url, other_storage)
        assert state_of(empty_url) is SchemaState.ABSENT

    @pytest.mark.parametrize("name", ["storage/../../evil", "storage//etc/passwd", "storage/.hidden"])
    def test_a_file_outside_the_storage_is_not_written(
        self, backup: Path, empty_url: str, other_storage: LocalStorage, name: str
    ) -> None:
        def change(members: dict[str, bytes]) -> None:
            members.update({name: b"x", **{key: members.pop(key) for key in list(members) if key.startswith("tables")}})

        with pytest.raises(BackupUnusable, match="no name of a stored file"):
            bring_back(rewritten(backup, change), empty_url, other_storage)

    def test_a_damaged_file_does_not_replace_one_that_is_there(
        self, service: Service, backup: Path, database_url: str, empty_url: str
    ) -> None:
        # The database is lost and the storage is not: the likeliest reason to restore.
        before = service.files()

        def change(members: dict[str, bytes]) -> None:
            stored = {name: content for name, content in members.items() if name.startswith("storage/")}
            members.update({name: b"x" * len(content) for name, content in stored.items()})

        for url, replace in ((empty_url, False), (database_url, True)):
            with pytest.raises(BackupUnusable, match="not what was backed up"):
                bring_back(rewritten(backup, change, digests=False), url, service.storage, replace=replace)
        assert service.files() == before

    def test_a_file_that_the_storage_has_otherwise_is_replaced_by_a_whole_backup_s(
        self, service: Service, backup: Path, database_url: str
    ) -> None:
        before = service.files()
        for key in list(before)[:2]:
            service.put(key, b"rotten")
        assert bring_back(backup, database_url, service.storage, replace=True).files == len(before)
        assert service.files() == before

    @pytest.mark.parametrize("name", ["tables/sqlite_master.jsonl", "tables/leases/x.jsonl", "other/jobs.jsonl"])
    def test_rows_of_what_is_no_table_of_ours_are_not_written(
        self, backup: Path, empty_url: str, other_storage: LocalStorage, name: str
    ) -> None:
        with pytest.raises(BackupUnusable, match="does not belong there"):
            bring_back(rewritten(backup, lambda m: m.update({name: b"[]\n"})), empty_url, other_storage)

    @pytest.mark.parametrize(
        ("content", "problem"),
        [
            (b"", "columns"),
            (b'["job_id","nonsense"]\n', "columns"),
            (b'["job_id","key","value"]\n["a","b"]\n', "2 values for 3 columns"),
            (b'["job_id","key","value"]\n{"job_id":"a"}\n', "cannot be read"),
            (b'["job_id","key","value"]\n["a","b\n', "cannot be read"),
            (b'["job_id","key","value"]\n["no_such_job","b","c"]\n', "does not fit"),
            (b'["job_id","key","value"]\n["a","b",{"c":1}]\n', "does not fit"),
            (b'["job_id","key","value"]\n["a","b",9223372036854775808]\n', "does not fit"),
        ],
    )
    def test_lines_that_are_no_rows_are_refused(
        self, backup: Path, empty_url: str, other_storage: LocalStorage, content: bytes, problem: str
    ) -> None:
        changed = rewritten(backup, lambda members: members.update({"tables/job_tags.jsonl": content}))
        with pytest.raises(BackupUnusable, match=problem):
            bring_back(changed, empty_url, other_storage)

    def test_a_json_text_that_is_none_is_refused(
        self, backup: Path, empty_url: str, other_storage: LocalStorage
    ) -> None:
        def change(members: dict[str, bytes]) -> None:
            members["tables/jobs.jsonl"] = members["tables/jobs.jsonl"].replace(b'"{', b'"{{')

        with pytest.raises(BackupUnusable, match="a row has a text in it"):
            bring_back(rewritten(backup, change), empty_url, other_storage)
        assert state_of(empty_url) is SchemaState.ABSENT

    @pytest.mark.parametrize(
        "contents", [{}, {"sha256": []}, {"sha256": None}, {"missing": "checkpoints/x"}, {"missing": [1]}]
    )
    def test_a_list_of_contents_that_is_none_is_refused(
        self, backup: Path, empty_url: str, other_storage: LocalStorage, contents: dict[str, object]
    ) -> None:
        def change(members: dict[str, bytes]) -> None:
            known = orjson.loads(members[CONTENTS])
            members[CONTENTS] = orjson.dumps({**known, **contents} if contents else {"missing": []})

        with pytest.raises(BackupUnusable, match="cannot be read"):
            bring_back(rewritten(backup, change, digests=False), empty_url, other_storage)
        assert state_of(empty_url) is SchemaState.ABSENT

    @pytest.mark.parametrize("content", [b"", b"no archive" * 100, bytes(10240)])
    def test_what_is_no_backup_is_said_to_be_none(self, backup: Path, empty_url: str, content: bytes) -> None:
        backup.write_bytes(content)
        with pytest.raises(BackupUnusable, match="is no backup"):
            bring_back(backup, empty_url, None)

    def test_a_newer_version_s_backup_is_refused(self, backup: Path, empty_url: str) -> None:
        def change(members: dict[str, bytes]) -> None:
            manifest = orjson.loads(members["manifest.json"])
            members["manifest.json"] = orjson.dumps({**manifest, "schema": "9999", "version": "99.0"})

        with pytest.raises(BackupUnusable, match=r"Trainshed 99\.0.*newer"):
            bring_back(rewritten(backup, change), empty_url, None)


class TestWhatIsThere:
    def test_a_database_with_jobs_is_not_overwritten(self, service: Service, backup: Path, database_url: str) -> None:
        before = service.rows()
        with pytest.raises(DatabaseInUse, match="jobs and data sets and bundles and holds"):
            bring_back(backup, database_url, None)
        assert service.rows() == before

    def test_one_data_set_is_reason_enough(self, backup: Path, empty_url: str) -> None:
        upgrade(empty_url)
        with opened(empty_url) as database, database.write() as session:
            add_dataset(session, add_project(session))
        with pytest.raises(DatabaseInUse, match="has data sets"):
            bring_back(backup, empty_url, None)

    def test_so_is_one_bundle(self, backup: Path, empty_url: str) -> None:
        upgrade(empty_url)
        with opened(empty_url) as database, database.write() as session:
            add_bundle(session, add_project(session))
        with pytest.raises(DatabaseInUse, match="has bundles"):
            bring_back(backup, empty_url, None)

    def test_a_new_service_s_own_project_is_replaced(self, service: Service, backup: Path, empty_url: str) -> None:
        upgrade(empty_url)
        with opened(empty_url) as database, database.write() as session:
            add_project(session, "of the new service")
        bring_back(backup, empty_url, None)
        with opened(empty_url) as database:
            assert [row["id"] for row in all_rows(database)["projects"]] == [service.project_id]

    def test_replace_deletes_what_is_there(self, service: Service, backup: Path, database_url: str) -> None:
        with service.database.write() as session:
            add_project(session, "later")
        bring_back(backup, database_url, service.storage, replace=True)
        assert [row["id"] for row in service.rows()["projects"]] == [service.project_id]

    def test_tables_of_others_in_the_same_database_stay(
        self, service: Service, backup: Path, database_url: str
    ) -> None:
        with service.database.write() as session:
            session.connection().exec_driver_sql("CREATE TABLE elses (id INTEGER)")
        bring_back(backup, database_url, None, replace=True)
        with service.database.read() as session:
            assert session.connection().exec_driver_sql("SELECT count(*) FROM elses").scalar() == 0

    @pytest.mark.parametrize("replace", [False, True])
    def test_a_database_of_a_newer_version_is_left_alone(self, backup: Path, empty_url: str, *, replace: bool) -> None:
        upgrade(empty_url)
        with opened(empty_url) as database, database.write() as session:
            session.connection().exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(SchemaNotUsable, match="newer"):
            bring_back(backup, empty_url, None, replace=replace)


class TestNewFile:
    def test_a_backup_that_fails_leaves_the_old_one_and_nothing_else(self, backup: Path) -> None:
        before, names = backup.read_bytes(), sorted(path.name for path in backup.parent.iterdir())

        def fail() -> None:
            with new_file(backup) as (stream, _):
                stream.write(b"half")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert backup.read_bytes() == before
        assert sorted(path.name for path in backup.parent.iterdir()) == names

    def test_it_is_readable_by_this_user_alone(self, backup: Path) -> None:
        assert backup.stat().st_mode & 0o777 == 0o600

    def test_what_is_no_file_is_not_replaced(self, backup: Path, tmp_path: Path) -> None:
        # As with /dev/null, which a rename of root would make a file of.
        special = tmp_path / "special"
        os.mkfifo(special)
        for target in (special, tmp_path):
            with pytest.raises(NotAFile, match="is no regular file"), new_file(target):
                pass
        assert special.is_fifo()
        assert backup.is_file()

    def test_a_link_stays_and_leads_to_the_new_one(self, backup: Path) -> None:
        link = backup.with_name("latest.tar")
        link.symlink_to(backup)
        with new_file(link) as (stream, _):
            stream.write(b"new")
        assert link.is_symlink()
        assert backup.read_bytes() == b"new"

    def test_a_full_disk_is_said_with_what_to_do(self, backup: Path) -> None:
        with pytest.raises(BackupFailed, match=r"No space left.*TMPDIR"), new_file(backup):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def test_a_folder_that_is_not_there_is_said(self, database: Database, tmp_path: Path) -> None:
        del database
        with pytest.raises(BackupFailed, match=r"none/b\.tar.*No such file"), new_file(tmp_path / "none" / "b.tar"):
            pass
