from dataclasses import replace
from datetime import timedelta

import pytest

from app.artifacts.models import Artifact
from app.artifacts.repository import ArtifactFacts, add, get_artifact, list_artifacts, valid_name
from app.artifacts.schemas import artifact_json
from app.db import Database
from app.errors import NotFound
from app.storage.keys import artifact_key
from tests.fakes import START
from tests.rows import add_job, add_project

# C72 of the collected failure cases: names by which other products served any file of the host.
TRAVERSALS = [
    "../../../../etc/passwd",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2e%2e/%2e%2e/secret",
    "/etc/passwd",
    "....//....//etc/passwd",
    "..\\..\\windows\\win.ini",
    "model.pt/../../other-job/model.pt",
    "model.pt%00.txt",
    "file:///etc/passwd",
    "./metrics.jsonl/../../../db.sqlite",
]


@pytest.fixture
def job_id(database: Database) -> str:
    with database.write() as session:
        return add_job(session, add_project(session)).id


def facts_of(job_id: str, name: str = "model.safetensors", attempt: int = 1) -> ArtifactFacts:
    return ArtifactFacts(
        job_id=job_id,
        name=name,
        attempt=attempt,
        kind="model",
        media_type="application/octet-stream",
        size_bytes=7,
        digest="ab" * 32,
        storage_key=artifact_key(job_id, attempt, name),
    )


class TestAdd:
    def test_is_found_again_as_it_was(self, database: Database, job_id: str) -> None:
        facts = facts_of(job_id)
        with database.write() as session:
            assert add(session, facts, START) is None
        with database.read() as session:
            row = get_artifact(session, job_id, "model.safetensors")
            assert ArtifactFacts(**{name: getattr(row, name) for name in vars(facts)}) == facts
            assert row.created_at == START

    def test_a_later_attempt_replaces_and_names_the_file_to_delete(self, database: Database, job_id: str) -> None:
        first, second = facts_of(job_id), replace(facts_of(job_id, attempt=2), size_bytes=9)
        with database.write() as session:
            add(session, first, START)
        with database.write() as session:
            assert add(session, second, START + timedelta(hours=1)) == first.storage_key
        with database.read() as session:
            (row,) = list_artifacts(session, job_id)
            assert (row.attempt, row.size_bytes, row.storage_key) == (2, 9, second.storage_key)

    def test_an_earlier_attempt_that_comes_late_changes_nothing(self, database: Database, job_id: str) -> None:
        with database.write() as session:
            add(session, facts_of(job_id, attempt=2), START)
        late = facts_of(job_id, attempt=1)
        with database.write() as session:
            assert add(session, late, START) == late.storage_key
        with database.read() as session:
            assert get_artifact(session, job_id, late.name).attempt == 2

    def test_the_same_file_again_asks_for_no_deletion(self, database: Database, job_id: str) -> None:
        for _ in range(2):
            with database.write() as session:
                assert add(session, facts_of(job_id), START) is None

    def test_it_goes_with_its_job(self, database: Database, job_id: str) -> None:
        with database.write() as session:
            add(session, facts_of(job_id), START)
        with database.write() as session:
            job = add_job(session, add_project(session, "other"))
            add(session, facts_of(job.id), START)
            session.delete(job)
        with database.read() as session:
            assert [row.job_id for row in session.query(Artifact)] == [job_id]


class TestGetAndList:
    def test_the_list_is_by_name_and_of_one_job(self, database: Database, job_id: str) -> None:
        with database.write() as session:
            other = add_job(session, add_project(session, "other")).id
            for job, name in ((job_id, "b"), (job_id, "a"), (other, "c")):
                add(session, facts_of(job, name), START)
        with database.read() as session:
            assert [row.name for row in list_artifacts(session, job_id)] == ["a", "b"]

    def test_what_is_not_there(self, database: Database, job_id: str) -> None:
        with database.read() as session, pytest.raises(NotFound, match="There is no artifact 'a'"):
            get_artifact(session, job_id, "a")

    def test_names_that_try_to_leave_the_folder_are_just_not_there(self, database: Database, job_id: str) -> None:
        # One answer for all of them, which repeats nothing that was sent.
        with database.read() as session:
            for name in [*TRAVERSALS, "..", ".", "a\0", "", "x" * 121]:
                assert not valid_name(name)
                with pytest.raises(NotFound, match=r"There is no artifact '\?'"):
                    get_artifact(session, job_id, name)

    @pytest.mark.parametrize("name", ["model.safetensors", "report.json", "A-1_b", "x" * 120])
    def test_ordinary_names(self, name: str) -> None:
        assert valid_name(name)


class TestWireForm:
    def test_has_no_storage_key(self, database: Database, job_id: str) -> None:
        with database.write() as session:
            add(session, facts_of(job_id), START)
        with database.read() as session:
            shown = artifact_json(get_artifact(session, job_id, "model.safetensors"))
        assert shown == {
            "object": "artifact",
            "name": "model.safetensors",
            "job_id": job_id,
            "attempt": 1,
            "kind": "model",
            "media_type": "application/octet-stream",
            "size_bytes": 7,
            "digest": "ab" * 32,
            "created_at": "2026-01-31T12:00:00.000000Z",
        }
