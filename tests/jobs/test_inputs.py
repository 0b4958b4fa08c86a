"""What a job needs: written with it, kept until it is over, and handed to the worker that claims it."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.orm import Session

from app.bundles.models import Bundle
from app.bundles.service import BundleInUse, delete_bundle
from app.datasets.models import Dataset
from app.datasets.service import DatasetInUse, delete_dataset
from app.db import Database
from app.ids import new_id
from app.jobs.claims import Claim, ClaimedBundle, ClaimedInput, claim
from app.jobs.inputs import Needed, holders_of
from app.jobs.models import Job, JobInput
from app.jobs.states import JobState
from app.jobs.submit import Submission, SubmitResult, submit, submit_all
from app.scheduling.run import schedule
from app.spec import AnyEffective, InvalidSpec, parse_job, parse_script, resolve, resolve_script
from app.storage import Storage, open_storage
from tests.fakes import START, FakeClock
from tests.jobs.placing import TABLE, TIMES
from tests.jobs.waiting_for_locks import Meanwhile
from tests.rows import add_dataset, add_project, add_worker

ONLY_POSTGRES = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


def add_bundle(session: Session, project_id: str) -> str:
    identity = new_id("bun")
    session.add(
        Bundle(
            id=identity,
            project_id=project_id,
            digest=identity.ljust(64, "0"),
            name="code.zip",
            format="zip",
            size_bytes=1,
            unpacked_bytes=1,
            files=1,
            storage_key=f"bundles/{identity}",
            created_by="ada",
            created_at=START,
        )
    )
    session.flush()
    return identity


class Scene:
    """A project with a bundle and two data sets, one of them read in place."""

    def __init__(self, database: Database) -> None:
        self.database = database
        with database.write() as session:
            project = add_project(session)
            self.project_id = project.id
            self.bundle = add_bundle(session, project.id)
            self.uploaded = add_dataset(session, project, storage_key="datasets/one").id
            self.in_place = add_dataset(session, project, storage_key="", uri="root://scans/a.csv").id

    def script(self, **changes: Any) -> AnyEffective:
        parts = {"bundle": self.bundle, "command": ["python", "train.py"], **changes}
        return resolve_script(parse_script({"framework": "torch", "script": parts}), "cuda")

    def submission(self, effective: AnyEffective, *needed: Needed, dataset_id: str | None = None) -> Submission:
        return Submission(
            project_id=self.project_id,
            owner="ada",
            key_id="key_0",
            raw=b"{}",
            effective=effective,
            effective_json=effective.model_dump_json(),
            warnings=[],
            dataset_id=dataset_id,
            idempotency=None,
            now=START,
            inputs=needed,
        )

    def submit(self, effective: AnyEffective, *needed: Needed, dataset_id: str | None = None) -> str:
        with self.database.write() as session:
            return submit(session, self.submission(effective, *needed, dataset_id=dataset_id)).job_id

    def claimed(self, job_id: str) -> Claim:
        with self.database.write() as session:
            worker_id = add_worker(session).id
        schedule(self.database, TIMES)
        with self.database.write() as session:
            found = claim(session, worker_id, "instance-1", job_id, 1, START, TIMES.lease_s)
        assert found is not None
        return found

    def end(self, job_id: str) -> None:
        with self.database.write() as session:
            session.get_one(Job, job_id).state = JobState.SUCCEEDED.value

    def holders(self, resource_id: str) -> list[str]:
        with self.database.write() as session:
            return holders_of(session, resource_id)


@pytest.fixture
def scene(database: Database, clock: FakeClock) -> Scene:
    assert clock.now() == START
    return Scene(database)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(f"file://{tmp_path}/storage")


class TestWritten:
    def test_each_is_a_row_of_the_job_once(self, scene: Scene) -> None:
        needed = [Needed(name, "/x") for name in (scene.bundle, scene.uploaded, scene.uploaded)]
        job_id = scene.submit(scene.script(), *needed)
        with scene.database.read() as session:
            rows = {row.resource_id for row in session.query(JobInput) if row.job_id == job_id}
            assert rows == {scene.bundle, scene.uploaded}
            assert session.get_one(Job, job_id).kind == "script"

    def test_what_is_gone_is_told_where_it_was_named_and_nothing_is_written(self, scene: Scene) -> None:
        lost = scene.submission(scene.script(), Needed(new_id("bun"), "/script/bundle"))
        good = scene.submission(scene.script(), Needed(scene.bundle, "/script/bundle"))
        with scene.database.write() as session:
            refused, accepted = submit_all(session, [lost, good])
        assert isinstance(refused, InvalidSpec)
        assert refused.problems[0].pointer == "/script/bundle"
        assert isinstance(accepted, SubmitResult)
        with scene.database.read() as session:
            assert [job.id for job in session.query(Job)] == [accepted.job_id]

    @pytest.mark.parametrize("kind", ["bundle", "uploaded"])
    def test_what_another_project_has_is_not_there(self, scene: Scene, kind: str) -> None:
        with scene.database.write() as session:
            other = add_project(session, "other").id
        submission = scene.submission(scene.script(), Needed(getattr(scene, kind), "/script"))
        with scene.database.write() as session, pytest.raises(InvalidSpec, match="in this project"):
            submit(session, replace(submission, project_id=other))


class TestKept:
    def test_until_the_last_job_that_needs_it_is_over(self, scene: Scene, storage: Storage) -> None:
        jobs = [scene.submit(scene.script(), Needed(scene.bundle, "/script/bundle")) for _ in range(2)]
        assert scene.holders(scene.bundle) == sorted(jobs)
        scene.end(jobs[0])
        with pytest.raises(BundleInUse) as caught:
            delete_bundle(scene.database, storage, scene.project_id, scene.bundle, holders=holders_of)
        assert caught.value.jobs == [jobs[1]]
        scene.end(jobs[1])
        delete_bundle(scene.database, storage, scene.project_id, scene.bundle, holders=holders_of)
        with scene.database.read() as session:
            assert session.get(Bundle, scene.bundle) is None

    def test_a_data_set_by_either_way_of_needing_it(self, scene: Scene, storage: Storage) -> None:
        needed = Needed(scene.in_place, "/script/data/a"), Needed(scene.uploaded, "/script/data/b")
        job_id = scene.submit(scene.script(), *needed, dataset_id=scene.in_place)
        for dataset in (scene.in_place, scene.uploaded):
            with pytest.raises(DatasetInUse, match=job_id):
                delete_dataset(scene.database, storage, scene.project_id, dataset, holders=holders_of)
        scene.end(job_id)
        for dataset in (scene.in_place, scene.uploaded):
            delete_dataset(scene.database, storage, scene.project_id, dataset, holders=holders_of)
        with scene.database.read() as session:
            assert session.get_one(Job, job_id).dataset_id is None
            assert session.query(Dataset).all() == []

    @ONLY_POSTGRES
    def test_a_deletion_that_meets_the_submit_waits_and_then_sees_it(self, scene: Scene, storage: Storage) -> None:
        def delete() -> None:
            delete_bundle(scene.database, storage, scene.project_id, scene.bundle, holders=holders_of)

        meanwhile = Meanwhile(delete)
        with scene.database.write() as session:
            submit(session, scene.submission(scene.script(), Needed(scene.bundle, "/script/bundle")))
            with meanwhile.running(scene.database):
                session.commit()
        assert isinstance(meanwhile.error, BundleInUse)


class TestClaimed:
    def test_a_script_gets_its_code_and_its_files(self, scene: Scene) -> None:
        spec = scene.script(data={"train": scene.uploaded, "more": scene.in_place})
        # Not `in_place`, since no worker of these tests reads a data root.
        found = scene.claimed(scene.submit(spec, dataset_id=scene.uploaded))
        assert found.spec == spec
        key = f"bundles/{scene.bundle}"
        assert found.bundle == ClaimedBundle(scene.bundle, key, "zip", scene.bundle.ljust(64, "0"))
        assert found.inputs == (
            ClaimedInput("train", "datasets/one", "csv", None, "0" * 64),
            ClaimedInput("more", "", "csv", "root://scans/a.csv", "0" * 64),
        )
        assert (found.dataset_key, found.dataset_uri, found.builtin, found.initialize) == (None, None, None, None)

    def test_a_script_without_a_bundle_gets_none(self, scene: Scene) -> None:
        found = scene.claimed(scene.submit(scene.script(bundle=None)))
        assert (found.bundle, found.inputs) == (None, ())

    def test_a_python_model_gets_its_code_and_its_table(self, scene: Scene) -> None:
        model = {"type": "python", "bundle": scene.bundle, "entrypoint": "nets:build"}
        spec = resolve(parse_job({"framework": "torch", "model": model, "data": "digits"}), TABLE, "cuda")
        found = scene.claimed(scene.submit(spec, Needed(scene.bundle, "/model/bundle")))
        assert found.bundle is not None
        assert (found.bundle.id, found.builtin, found.inputs) == (scene.bundle, "digits", ())

    def test_any_other_model_has_no_code(self, scene: Scene) -> None:
        spec = resolve(parse_job({"framework": "torch", "model": "mlp", "data": "digits"}), TABLE, "cuda")
        found = scene.claimed(scene.submit(spec))
        assert (found.spec, found.bundle) == (spec, None)
