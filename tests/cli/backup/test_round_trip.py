"""What was backed up is there again, on the same database and across the two kinds."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from app.accounts.service import authenticate
from app.checkpoints import repository as checkpoints
from app.db import Database
from app.fleet.models import Lease, Worker
from app.holds.models import Hold
from app.jobs.models import Attempt, Job, JobHead, JournalRow
from app.migrations_runner import is_current
from app.storage import LocalStorage, S3Storage
from tests.cli.backup.service import MOMENT, STEPS, Rows, Service, all_files, all_rows, bring_back, opened
from tests.fakes import START
from tests.s3 import S3Server

ONLY_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

# What a restore puts right; everything else must be the same to the last digit.
PUT_RIGHT = {
    "workers": {"state", "instance"},
    "holds": {"ended_at", "ended_why"},
    "attempts": {"ended_at", "device_s"},
    "jobs": {"state", "run_s"},
    "job_heads": {"last_seq"},
}


def without(rows: Rows, running: str) -> dict[str, list[dict[str, Any]]]:
    """Rows without what is put right; of the journal, without what is added to the running job's."""
    return {
        table: [
            {name: value for name, value in row.items() if name not in PUT_RIGHT.get(table, ())}
            for row in found
            if table != "journal" or row["job_id"] != running
        ]
        for table, found in rows.items()
    }


class TestRoundTrip:
    def test_rows_and_files_are_the_same_on_any_database(
        self, service: Service, file: Path, other_url: str, other_storage: LocalStorage
    ) -> None:
        before = service.rows()
        made = service.backup(file)
        restored = bring_back(file, other_url, other_storage)
        with opened(other_url) as database:
            assert without(all_rows(database), service.running) == without(before, service.running)
            with database.read() as session:
                assert is_current(session)
        assert all_files(other_storage) == service.files()
        # One upload, one bundle, one model, two checkpoints of two files.
        assert made.copied.files == restored.files == 7
        assert made.copied.size_bytes == restored.size_bytes == sum(map(len, service.files().values()))
        assert made.copied.missing == restored.settled.missing == []
        assert restored.rows == made.rows == {table: len(rows) for table, rows in before.items()}

    def test_keys_work_afterwards(
        self, service: Service, file: Path, empty_url: str, other_storage: LocalStorage
    ) -> None:
        service.backup(file)
        bring_back(file, empty_url, other_storage)
        with opened(empty_url) as database, database.read() as session:
            found = authenticate(session, service.secret, START)
        assert found is not None
        assert found.project_id == service.project_id
        assert found.may("code")

    def test_without_storage_rows_come_and_files_stay_where_they_are(
        self, service: Service, file: Path, empty_url: str, other_storage: LocalStorage
    ) -> None:
        made = service.backup(file, with_storage=False)
        restored = bring_back(file, empty_url, other_storage)
        assert (made.copied.files, restored.files, all_files(other_storage)) == (0, 0, {})
        with opened(empty_url) as database:
            assert len(all_rows(database)["jobs"]) == 3
        with opened(empty_url) as database, database.read() as session:
            assert len(checkpoints.newest(session, service.running)) == len(STEPS)

    def test_files_of_a_backup_can_be_left_where_they_are(self, service: Service, file: Path, empty_url: str) -> None:
        service.backup(file)
        assert bring_back(file, empty_url, None).files == 0

    def test_what_came_later_is_not_in_it(self, service: Service, file: Path, empty_url: str) -> None:
        service.backup(file)
        with service.database.write() as session:
            session.get_one(Job, service.jobs["paused"]).name = "renamed"
        bring_back(file, empty_url, None)
        with opened(empty_url) as database, database.read() as session:
            assert session.get_one(Job, service.jobs["paused"]).name == ""


@ONLY_SQLITE
class TestAcrossStorages:
    def test_from_a_folder_to_s3_and_again_onto_what_is_there(
        self, service: Service, file: Path, empty_url: str, shared_s3: S3Server
    ) -> None:
        service.backup(file)
        storage = S3Storage(shared_s3.new_bucket("trainshed"), shared_s3.access)
        bring_back(file, empty_url, storage)
        rotten = storage.list()[0]
        other = service.folder / "other"
        other.write_bytes(b"rotten")
        storage.put(rotten, other)
        bring_back(file, empty_url, storage, replace=True)
        found = {}
        for key in storage.list():
            with storage.open(key) as stored:
                found[key] = stored.read()
        assert found == service.files()


class TestWhatRan:
    @pytest.fixture
    def restored(self, service: Service, file: Path, other_url: str, other_storage: LocalStorage) -> Any:
        service.backup(file)
        assert bring_back(file, other_url, other_storage).settled.requeued == [service.running]
        with opened(other_url) as database:
            yield database

    def test_a_running_job_waits_again_with_its_checkpoints_and_budgets(
        self, service: Service, restored: Database, other_storage: LocalStorage
    ) -> None:
        with restored.read() as session:
            job = session.get_one(Job, service.running)
            assert (job.state, job.attempt, job.losses, job.failures, job.queued_at) == ("queued", 1, 1, 0, START)
            newest = checkpoints.newest(session, job.id)
            assert [row.step for row in newest] == sorted(STEPS, reverse=True)
            assert all(other_storage.exists(key) for row in newest for key in row.keys)
            assert session.get_one(Attempt, (job.id, 1)).ended_at == MOMENT
            assert session.scalar(select(func.count()).select_from(Lease)) == 0

    def test_the_time_since_the_backup_is_not_on_its_limit(self, service: Service, restored: Database) -> None:
        # It had run from START on; the backup was made ten minutes later, and brought back a day later.
        with restored.read() as session:
            assert session.get_one(Job, service.running).run_s == 600.0

    def test_its_journal_goes_on_without_a_gap_and_says_why(self, service: Service, restored: Database) -> None:
        with restored.read() as session:
            rows = session.scalars(
                select(JournalRow).where(JournalRow.job_id == service.running).order_by(JournalRow.seq)
            ).all()
            head = session.get_one(JobHead, service.running)
        assert [row.seq for row in rows] == list(range(1, head.last_seq + 1))
        assert [row.kind for row in rows] == ["state", "notice"]
        assert '"code":"restored"' in rows[-1].data

    def test_a_paused_job_stays_so(self, service: Service, restored: Database) -> None:
        with restored.read() as session:
            assert session.get_one(Job, service.jobs["paused"]).state == "paused"

    def test_no_worker_is_there_and_one_that_still_runs_is_not_taken_for_its_own(self, restored: Database) -> None:
        with restored.read() as session:
            worker = session.scalars(select(Worker)).one()
        assert (worker.state, worker.instance == "instance-1") == ("offline", False)

    def test_holds_have_ended(self, restored: Database) -> None:
        with restored.read() as session:
            hold = session.scalars(select(Hold)).one()
        assert (hold.ended_at, hold.ended_why) == (MOMENT, "device_gone")

    @ONLY_SQLITE
    def test_a_job_that_was_being_cancelled_is_cancelled(self, service: Service, file: Path, empty_url: str) -> None:
        with service.database.write() as session:
            session.get_one(Job, service.running).stop_requested = "cancel"
        service.backup(file)
        bring_back(file, empty_url, None)
        with opened(empty_url) as database, database.read() as session:
            assert session.get_one(Job, service.running).state == "cancelled"
            assert session.get_one(JobHead, service.running).closed
