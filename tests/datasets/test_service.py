import hashlib
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from app.datasets.models import Dataset
from app.datasets.service import (
    DatasetInUse,
    InPlace,
    UnknownDataset,
    Upload,
    add_dataset,
    data_root,
    delete_dataset,
    get_dataset,
    list_datasets,
    register_dataset,
    source_schema,
)
from app.db import Database, DatabaseDown
from app.errors import NotFound
from app.ids import new_id
from app.jobs.models import Job
from app.jobs.states import FINAL, JobState
from app.storage import LocalStorage
from app.tables import BUILTIN, FORMATS, TableFormat, builtin_schema, profile_csv
from tests.fakes import START
from tests.rows import add_job, add_project

CSV = b"height,species\n1.5,gentoo\n2.5,adelie\n"


def jobs_that_need(session: Session, dataset_id: str) -> Sequence[str]:
    """What the API passes: unfinished jobs hold a data set, finished ones let go of it."""
    unfinished = Job.state.not_in([state.value for state in FINAL])
    needed = session.scalars(select(Job.id).where(Job.dataset_id == dataset_id, unfinished).order_by(Job.id)).all()
    if not needed:
        session.execute(update(Job).where(Job.dataset_id == dataset_id).values(dataset_id=None))
    return needed


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    return LocalStorage(tmp_path / "storage")


@pytest.fixture
def project_id(database: Database) -> str:
    with database.write() as session:
        return add_project(session).id


@pytest.fixture
def upload(tmp_path: Path) -> Upload:
    path = tmp_path / "upload"
    path.write_bytes(CSV)
    return Upload(path, "/home/ada/penguins.csv", profile_csv(path))


@pytest.fixture
def in_place(upload: Upload) -> InPlace:
    return InPlace("root://scans/2025/birds.csv", "", upload.table, "csv", len(CSV), "d" * 64, START)


@pytest.fixture
def dataset(database: Database, storage: LocalStorage, project_id: str, upload: Upload) -> Dataset:
    return add_dataset(database, storage, upload, project_id=project_id, user="ada", now=START)


class TestAddDataset:
    def test_keeps_the_bytes_and_what_is_known_of_them(
        self, database: Database, storage: LocalStorage, project_id: str, dataset: Dataset, upload: Upload
    ) -> None:
        with database.read() as session:
            row = get_dataset(session, project_id, dataset.id)
        assert (row.name, row.format, row.state, row.created_by) == ("penguins.csv", "csv", "ready", "ada")
        assert (row.rows, row.size_bytes) == (2, len(CSV))
        assert row.digest == hashlib.sha256(CSV).hexdigest()
        assert row.created_at == START
        path = storage.local_path(row.storage_key)
        assert path is not None
        assert path.read_bytes() == CSV
        assert upload.path.exists()

    @pytest.mark.parametrize("table_format", FORMATS)
    def test_keeps_the_format_and_a_name_that_fits_it(
        self, database: Database, storage: LocalStorage, project_id: str, upload: Upload, table_format: TableFormat
    ) -> None:
        nameless = replace(upload, name="", format=table_format)
        row = add_dataset(database, storage, nameless, project_id=project_id, user="ada", now=START)
        assert (row.format, row.name) == (table_format, f"dataset.{table_format}")

    def test_the_same_file_twice_gives_two_that_live_apart(
        self, database: Database, storage: LocalStorage, project_id: str, dataset: Dataset, upload: Upload
    ) -> None:
        second = add_dataset(database, storage, upload, project_id=project_id, user="bob", now=START)
        assert second.digest == dataset.digest
        delete_dataset(database, storage, project_id, dataset.id, holders=jobs_that_need)
        assert storage.exists(second.storage_key)

    def test_a_full_disk_leaves_no_row(
        self,
        database: Database,
        storage: LocalStorage,
        project_id: str,
        upload: Upload,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def full(_: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            add_dataset(database, storage, upload, project_id=project_id, user="ada", now=START)
        with database.read() as session:
            assert list_datasets(session, project_id) == []

    def test_a_row_that_cannot_be_written_leaves_no_file(
        self, database: Database, storage: LocalStorage, upload: Upload
    ) -> None:
        with pytest.raises(IntegrityError):
            add_dataset(database, storage, upload, project_id="prj_none", user="ada", now=START)
        assert storage.list() == []

    def test_a_database_that_went_away_may_have_the_row_so_the_file_stays(
        self, storage: LocalStorage, upload: Upload
    ) -> None:
        down = Database("postgresql+psycopg://nobody@/none?host=/nowhere")
        with pytest.raises(DatabaseDown):
            add_dataset(down, storage, upload, project_id="prj_none", user="ada", now=START)
        down.dispose()
        assert len(storage.list("datasets")) == 1


class TestRegisterDataset:
    def test_keeps_the_address_and_the_facts_and_no_file(
        self, database: Database, storage: LocalStorage, project_id: str, in_place: InPlace
    ) -> None:
        made = register_dataset(database, in_place, project_id=project_id, user="ada", now=START)
        with database.read() as session:
            row = get_dataset(session, project_id, made.id)
        assert (row.uri, row.name, row.format, row.rows) == (in_place.uri, "birds.csv", "csv", 2)
        assert (row.size_bytes, row.digest, row.modified_at) == (len(CSV), "d" * 64, START)
        assert (row.storage_key, storage.list()) == ("", [])

    def test_what_goes_with_it_fails_with_it(self, database: Database, project_id: str, in_place: InPlace) -> None:
        def also(_: Session, dataset_id: str) -> None:
            raise RuntimeError(dataset_id)

        with pytest.raises(RuntimeError, match="ds_"):
            register_dataset(database, in_place, project_id=project_id, user="ada", now=START, also=also)
        with database.read() as session:
            assert list_datasets(session, project_id) == []

    def test_deleting_it_only_forgets_it(
        self, database: Database, storage: LocalStorage, project_id: str, dataset: Dataset, in_place: InPlace
    ) -> None:
        made = register_dataset(database, in_place, project_id=project_id, user="ada", now=START)
        delete_dataset(database, storage, project_id, made.id, holders=jobs_that_need)
        assert storage.list() == [dataset.storage_key]
        with database.read() as session, pytest.raises(NotFound):
            get_dataset(session, project_id, made.id)


class TestGetAndList:
    def test_another_project_sees_nothing(self, database: Database, dataset: Dataset) -> None:
        with database.write() as session:
            other = add_project(session, "other").id
        with database.read() as session:
            assert list_datasets(session, other) == []
            with pytest.raises(NotFound, match=f"There is no data set '{dataset.id}' in this project"):
                get_dataset(session, other, dataset.id)

    def test_pages_by_id_in_both_directions(
        self, database: Database, storage: LocalStorage, project_id: str, upload: Upload
    ) -> None:
        made = [
            add_dataset(database, storage, upload, project_id=project_id, user="ada", now=START).id for _ in range(5)
        ]
        for descending in (True, False):
            seen: list[str] = []
            while True:
                with database.read() as session:
                    after = seen[-1] if seen else None
                    page = list_datasets(session, project_id, after=after, limit=2, descending=descending)
                if not page:
                    break
                seen.extend(row.id for row in page)
            assert seen == (made[::-1] if descending else made)


class TestDelete:
    def test_row_and_file_are_gone(
        self, database: Database, storage: LocalStorage, project_id: str, dataset: Dataset
    ) -> None:
        delete_dataset(database, storage, project_id, dataset.id, holders=jobs_that_need)
        assert storage.list() == []
        with database.read() as session, pytest.raises(NotFound):
            get_dataset(session, project_id, dataset.id)
        with pytest.raises(NotFound):
            delete_dataset(database, storage, project_id, dataset.id, holders=jobs_that_need)

    def test_another_projects_data_set_stays(self, database: Database, storage: LocalStorage, dataset: Dataset) -> None:
        with pytest.raises(NotFound):
            delete_dataset(database, storage, "prj_other", dataset.id, holders=jobs_that_need)
        assert storage.exists(dataset.storage_key)

    @pytest.mark.parametrize("state", [state for state in JobState if not state.is_final])
    def test_is_refused_while_a_job_needs_it(
        self, database: Database, storage: LocalStorage, project_id: str, dataset: Dataset, state: JobState
    ) -> None:
        with database.write() as session:
            project = add_project(session, "for the job")
            job = add_job(session, project, project_id=project_id, dataset_id=dataset.id, state=state)
        with pytest.raises(DatasetInUse, match=f"needed by {job.id}; cancel") as caught:
            delete_dataset(database, storage, project_id, dataset.id, holders=jobs_that_need)
        assert caught.value.jobs == [job.id]
        assert caught.value.code == "conflict"
        assert storage.exists(dataset.storage_key)

    @pytest.mark.parametrize("state", sorted(FINAL))
    def test_a_finished_job_does_not_hold_it(
        self, database: Database, storage: LocalStorage, project_id: str, dataset: Dataset, state: JobState
    ) -> None:
        with database.write() as session:
            project = add_project(session, "for the job")
            job = add_job(session, project, project_id=project_id, dataset_id=dataset.id, state=state)
        delete_dataset(database, storage, project_id, dataset.id, holders=jobs_that_need)
        with database.read() as session:
            assert session.get_one(Job, job.id).dataset_id is None

    def test_many_jobs_are_counted_not_listed(self) -> None:
        error = DatasetInUse("ds_1", [f"job_{n}" for n in range(7)])
        assert "job_4 and 2 more" in str(error)
        assert len(error.jobs) == 7

    def test_a_file_that_cannot_be_removed_does_not_undo_the_deletion(
        self,
        database: Database,
        storage: LocalStorage,
        project_id: str,
        dataset: Dataset,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(os, "unlink", refuse)
        delete_dataset(database, storage, project_id, dataset.id, holders=jobs_that_need)
        monkeypatch.undo()
        assert dataset.storage_key in caplog.text
        with database.read() as session:
            assert list_datasets(session, project_id) == []

    def test_a_job_submitted_meanwhile_is_seen_or_fails(
        self, database: Database, database_url: str, storage: LocalStorage, project_id: str, dataset: Dataset
    ) -> None:
        # Deletion stops while it looks for jobs; a submit begins then. Whichever wins, no job is left without its data.
        looking, submitted = threading.Event(), threading.Event()
        refused: list[Exception] = []

        def submit() -> None:
            other = Database(database_url, synchronous="normal")
            looking.wait()
            submitted.set()
            try:
                with other.write() as session:
                    job = Job(**COLUMNS, id=new_id("job"), project_id=project_id, dataset_id=dataset.id)
                    session.add(job)
            except IntegrityError as error:
                refused.append(error)
            other.dispose()

        def holders(session: Session, dataset_id: str) -> Sequence[str]:
            looking.set()
            submitted.wait()
            return jobs_that_need(session, dataset_id)

        thread = threading.Thread(target=submit)
        thread.start()
        delete_dataset(database, storage, project_id, dataset.id, holders=holders)
        thread.join()
        assert len(refused) == 1
        with database.read() as session:
            assert session.scalars(select(Job.id)).all() == []


COLUMNS: dict[str, object] = {
    "owner": "ada",
    "key_id": "key_1",
    "framework": "torch",
    "spec": "{}",
    "effective_spec": {},
    "device_count": 1,
    "device_type": "cpu",
    "timeout_s": 60.0,
    "created_at": START,
    "queued_at": START,
}


class TestSourceSchema:
    @pytest.mark.parametrize("name", BUILTIN)
    def test_a_built_in_name(self, database: Database, project_id: str, name: str) -> None:
        with database.read() as session:
            assert source_schema(session, project_id, name) == (None, builtin_schema(name), None)

    def test_an_uploaded_one_by_its_id(
        self, database: Database, project_id: str, dataset: Dataset, upload: Upload
    ) -> None:
        with database.read() as session:
            assert source_schema(session, project_id, dataset.id) == (dataset.id, upload.table, None)

    def test_one_that_is_read_in_place_says_in_which_root(
        self, database: Database, project_id: str, in_place: InPlace
    ) -> None:
        row = register_dataset(database, in_place, project_id=project_id, user="ada", now=START)
        with database.read() as session:
            assert source_schema(session, project_id, row.id) == (row.id, in_place.table, "scans")
            assert data_root(session, row.id) == "scans"

    def test_data_that_are_not_read_in_place_are_in_no_root(self, database: Database, dataset: Dataset) -> None:
        with database.read() as session:
            assert (data_root(session, dataset.id), data_root(session, None)) == (None, None)

    def problem(self, database: Database, project_id: str, source: str) -> tuple[str, str | None]:
        with database.read() as session, pytest.raises(UnknownDataset) as caught:
            source_schema(session, project_id, source)
        (problem,) = caught.value.problems
        assert problem.pointer == "/data/source"
        assert caught.value.code == "invalid_spec"
        return problem.message, problem.suggestion

    def test_a_misspelt_built_in_name(self, database: Database, project_id: str) -> None:
        message, suggestion = self.problem(database, project_id, "digit")
        assert message.startswith("There is no data set 'digit'; did you mean 'digits'?")
        assert "Built in are digits, iris, wine, breast_cancer, diabetes" in message
        assert suggestion == '"digits"'

    def test_a_file_name_leads_to_the_id_of_the_newest_upload(
        self, database: Database, storage: LocalStorage, project_id: str, dataset: Dataset, upload: Upload
    ) -> None:
        newest = add_dataset(database, storage, upload, project_id=project_id, user="ada", now=START)
        _, suggestion = self.problem(database, project_id, "penguins.csv")
        assert suggestion == f'"{newest.id}"'
        assert newest.id != dataset.id

    def test_an_address_leads_to_the_id_that_it_was_registered_under(
        self, database: Database, project_id: str, in_place: InPlace
    ) -> None:
        row = register_dataset(database, in_place, project_id=project_id, user="ada", now=START)
        assert self.problem(database, project_id, in_place.uri)[1] == f'"{row.id}"'
        assert self.problem(database, project_id, "root://scans/other.csv")[1] is None

    def test_another_projects_id_looks_like_no_id_at_all(self, database: Database, dataset: Dataset) -> None:
        with database.write() as session:
            other = add_project(session, "other").id
        theirs = self.problem(database, other, dataset.id)
        nobodys = self.problem(database, other, missing := new_id("ds"))
        assert theirs[0].replace(dataset.id, missing) == nobodys[0]
        assert theirs[1] is nobodys[1] is None

    @pytest.mark.parametrize("source", ["", "x" * 5000, "a\0b", "../etc/passwd", "ds_short", "'; DROP TABLE jobs"])
    def test_anything_else_is_a_problem_too(self, database: Database, project_id: str, source: str) -> None:
        message, _ = self.problem(database, project_id, source)
        assert len(message) < 500
