"""Listing and downloading checkpoints, and starting a job from one of another."""

import io
import zipfile
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from safetensors.numpy import load

from app.api.archives import Member, zip_chunks
from app.api.checkpoints import CheckpointPage
from app.db import Database
from app.jobs.models import Job
from app.storage import LocalStorage, Storage
from tests.api.client import ONE_DATABASE, SPEC, Api, Tenant, problem
from tests.api.stored import IRIS, leave_checkpoint
from tests.fakes import START


class TestList:
    def test_each_says_what_it_is(self, api: Api, database: Database, storage: Storage, tmp_path: Path) -> None:
        job = api.submit()["id"]
        for step in (10, 20, 30):
            reason = "final" if step == 30 else "periodic"
            leave_checkpoint(database, storage, tmp_path, job, step, best=step == 20, reason=reason)
        page = api.get(f"/v1/jobs/{job}/checkpoints").json()
        CheckpointPage.model_validate(page)
        shown = [(row["step"], row["epoch"], row["best"], row["last"], row["final"]) for row in page["data"]]
        assert shown == [(30, 3, False, True, True), (20, 2, True, False, False), (10, 1, False, False, False)]
        assert page["data"][0]["size_bytes"] == sum(file["size_bytes"] for file in page["data"][0]["files"])
        assert (page["has_more"], page["next_after"]) == (False, None)

    @pytest.mark.parametrize("order", ["asc", "desc"])
    def test_pages_hold_every_step_once(
        self, api: Api, database: Database, storage: Storage, tmp_path: Path, order: str
    ) -> None:
        job = api.submit()["id"]
        for step in range(5):  # 0 is a step too: the cursor must not take it for nothing
            leave_checkpoint(database, storage, tmp_path, job, step)
        walked: list[int] = []
        path: str | None = f"/v1/jobs/{job}/checkpoints?limit=2&order={order}"
        while path is not None:
            answer = api.get(path)
            walked += [row["step"] for row in answer.json()["data"]]
            link = answer.headers.get("link")
            path = link.removesuffix('>; rel="next"').removeprefix("<") if link else None
        assert walked == sorted(range(5), reverse=order == "desc")

    def test_a_job_without_one_has_an_empty_list_and_another_project_none(self, api: Api, other: Tenant) -> None:
        job = api.submit()["id"]
        assert api.get(f"/v1/jobs/{job}/checkpoints").json()["data"] == []
        problem(api.with_key(other.user).get(f"/v1/jobs/{job}/checkpoints"), 404, "not_found")

    @ONE_DATABASE
    @pytest.mark.parametrize("after", ["-1", "x", str(2**63)])
    def test_a_cursor_that_is_no_step_is_refused(self, api: Api, after: str) -> None:
        job = api.submit()["id"]
        problem(api.get(f"/v1/jobs/{job}/checkpoints?after={after}"), 422, "invalid_request")


class TestDownload:
    def test_the_archive_has_the_files_as_they_were(
        self, api: Api, database: Database, storage: Storage, tmp_path: Path
    ) -> None:
        job = api.submit()["id"]
        facts = leave_checkpoint(database, storage, tmp_path, job, 10)
        answer = api.get(f"/v1/jobs/{job}/checkpoints/10/content")
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
        assert answer.headers["content-disposition"] == f'attachment; filename="{job}-step-10.zip"'
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            assert archive.testzip() is None
            assert {info.filename: info.file_size for info in archive.infolist()} == {
                file.name: file.size_bytes for file in facts.files
            }
            assert {info.compress_type for info in archive.infolist()} == {zipfile.ZIP_STORED}
            weights = load(archive.read("weights.safetensors"))
        assert {name: value.shape for name, value in weights.items()} == dict(IRIS)

    def test_who_has_it_already_gets_304(self, api: Api, database: Database, storage: Storage, tmp_path: Path) -> None:
        job = api.submit()["id"]
        leave_checkpoint(database, storage, tmp_path, job, 10)
        path = f"/v1/jobs/{job}/checkpoints/10/content"
        etag = api.get(path).headers["etag"]
        assert api.get(path, headers={"If-None-Match": etag}).status_code == 304

    def test_what_is_not_there_is_404(
        self, api: Api, other: Tenant, database: Database, storage: Storage, tmp_path: Path
    ) -> None:
        job = api.submit()["id"]
        facts = leave_checkpoint(database, storage, tmp_path, job, 10)
        problem(api.get(f"/v1/jobs/{job}/checkpoints/11/content"), 404, "not_found")
        problem(api.with_key(other.user).get(f"/v1/jobs/{job}/checkpoints/10/content"), 404, "not_found")
        storage.delete(facts.keys[1])
        problem(api.get(f"/v1/jobs/{job}/checkpoints/10/content"), 404, "not_found")

    @ONE_DATABASE
    @pytest.mark.parametrize("step", ["-1", "best", str(2**63), "1e3"])
    def test_a_step_that_is_none_leads_nowhere(self, api: Api, step: str) -> None:
        job = api.submit()["id"]
        problem(api.get(f"/v1/jobs/{job}/checkpoints/{step}/content"), 404, "not_found")

    @ONE_DATABASE
    def test_a_storage_that_fails_is_503(
        self, api: Api, database: Database, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fails(_self: LocalStorage, _key: str) -> BinaryIO:
            raise OSError(5, "Input/output error")

        job = api.submit()["id"]
        leave_checkpoint(database, storage, tmp_path, job, 10)
        monkeypatch.setattr(LocalStorage, "open", fails)
        problem(api.get(f"/v1/jobs/{job}/checkpoints/10/content"), 503, "storage_unavailable")


class TestArchive:
    def test_it_comes_in_pieces_and_closes_what_it_read(self, tmp_path: Path) -> None:
        content = bytes(range(256)) * 4096
        (tmp_path / "large").write_bytes(content)
        file = (tmp_path / "large").open("rb")
        pieces = list(zip_chunks([Member("large", file, len(content))], START))
        assert len(pieces) > 3
        assert max(map(len, pieces)) < len(content) / 2
        assert file.closed
        with zipfile.ZipFile(io.BytesIO(b"".join(pieces))) as archive:
            assert archive.read("large") == content
            assert archive.infolist()[0].date_time == (2026, 1, 31, 12, 0, 0)

    def test_so_it_does_when_nobody_reads_to_the_end(self, tmp_path: Path) -> None:
        (tmp_path / "large").write_bytes(b"x" * 1_000_000)
        file = (tmp_path / "large").open("rb")
        pieces = zip_chunks([Member("large", file, 1_000_000)], START)
        next(pieces)
        pieces.close()  # type: ignore[attr-defined] # it is a generator
        assert file.closed


class TestInitializeFrom:
    def spec(self, job: str, checkpoint: object = "last", **changes: Any) -> dict[str, Any]:
        return SPEC | {"initialize_from": {"job": job, "checkpoint": checkpoint}} | changes

    @pytest.mark.parametrize("checkpoint", ["last", "best", 10])
    def test_weights_that_fit_are_accepted(
        self, api: Api, database: Database, storage: Storage, tmp_path: Path, checkpoint: object
    ) -> None:
        source = api.submit()["id"]
        leave_checkpoint(database, storage, tmp_path, source, 10, best=True)
        answer = api.post("/v1/jobs", json=self.spec(source, checkpoint))
        assert answer.status_code == 201, answer.text
        assert answer.json()["effective_spec"]["initialize_from"] == {"job": source, "checkpoint": checkpoint}
        assert answer.json()["parent"] is None

    @pytest.mark.parametrize("route", ["/v1/jobs", "/v1/jobs/validate"])
    def test_weights_of_another_shape_are_named(
        self, api: Api, database: Database, storage: Storage, tmp_path: Path, route: str
    ) -> None:
        source = api.submit()["id"]
        leave_checkpoint(database, storage, tmp_path, source, 10)
        spec = self.spec(source, model={"type": "mlp", "hidden": [9]})
        (shown,) = problem(api.post(route, json=spec), 422, "invalid_spec")["errors"]
        assert shown["pointer"] == "/initialize_from"
        assert "'dense_1.kernel' is [4, 9] here and [4, 8] there" in shown["message"]

    def test_another_number_of_layers_is_named(
        self, api: Api, database: Database, storage: Storage, tmp_path: Path
    ) -> None:
        source = api.submit()["id"]
        leave_checkpoint(database, storage, tmp_path, source, 10)
        spec = self.spec(source, model={"type": "mlp", "hidden": [8, 8]})
        (shown,) = problem(api.post("/v1/jobs", json=spec), 422, "invalid_spec")["errors"]
        assert "'dense_2.kernel' is only here" in shown["message"]

    def test_a_job_that_is_not_there_or_not_ours_is_named_the_same_way(
        self, api: Api, other: Tenant, database: Database, storage: Storage, tmp_path: Path
    ) -> None:
        theirs = api.with_key(other.user).submit()["id"]
        leave_checkpoint(database, storage, tmp_path, theirs, 10)
        for job in (theirs, "job_01k0000000000000000000000a"):
            (shown,) = problem(api.post("/v1/jobs", json=self.spec(job)), 422, "invalid_spec")["errors"]
            assert shown["pointer"] == "/initialize_from/job"
            assert shown["message"] == f"There is no job '{job}' in this project."

    @pytest.mark.parametrize("checkpoint", ["best", 11, 2**63 - 1])
    def test_a_checkpoint_that_is_not_there_is_answered_with_those_that_are(
        self, api: Api, database: Database, storage: Storage, tmp_path: Path, checkpoint: object
    ) -> None:
        source = api.submit()["id"]
        leave_checkpoint(database, storage, tmp_path, source, 10)
        (shown,) = problem(api.post("/v1/jobs", json=self.spec(source, checkpoint)), 422, "invalid_spec")["errors"]
        assert shown["pointer"] == "/initialize_from/checkpoint"
        assert "its newest: 10." in shown["message"]

    def test_a_job_without_any_says_so(self, api: Api) -> None:
        source = api.submit()["id"]
        (shown,) = problem(api.post("/v1/jobs", json=self.spec(source)), 422, "invalid_spec")["errors"]
        assert "has no checkpoint (yet)" in shown["message"]

    @ONE_DATABASE
    def test_one_whose_file_is_gone_or_no_weights_is_refused(
        self, api: Api, database: Database, storage: Storage, tmp_path: Path
    ) -> None:
        source = api.submit()["id"]
        facts = leave_checkpoint(database, storage, tmp_path, source, 10)
        (tmp_path / "junk").write_bytes(b"junk")
        storage.put(f"{facts.storage_prefix}/weights.safetensors", tmp_path / "junk")
        for _ in range(2):
            (shown,) = problem(api.post("/v1/jobs", json=self.spec(source)), 422, "invalid_spec")["errors"]
            assert "cannot be read" in shown["message"]
            storage.delete(f"{facts.storage_prefix}/weights.safetensors")

    @ONE_DATABASE
    def test_a_clone_may_start_from_the_job_that_it_was_made_from(
        self, api: Api, database: Database, storage: Storage, tmp_path: Path
    ) -> None:
        source = api.submit()["id"]
        leave_checkpoint(database, storage, tmp_path, source, 10)
        patch = {"spec": {"initialize_from": {"job": source, "checkpoint": 10}}}
        child = api.post(f"/v1/jobs/{source}/clone", json=patch)
        assert child.status_code == 201, child.text
        with database.read() as session:
            assert session.get_one(Job, child.json()["id"]).parent_step is None
