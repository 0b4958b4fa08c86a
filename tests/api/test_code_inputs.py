"""Data sets and bundles that a script names: found, written with the job, kept until it is over."""

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from app.api import submission, submitter
from app.api.views import JobDetailView
from app.bundles.models import Bundle
from app.datasets.models import Dataset
from app.db import Database
from app.jobs.models import Job, JobInput
from app.settings import Settings
from tests.api.client import ONE_DATABASE, Api, problem
from tests.api.coding import CSV, only_error, python, script, submitted, upload
from tests.rows import add_worker

NO_DATA = "ds_01k0000000000000000000000a"


class TestData:
    def test_an_unknown_one_is_told_with_the_newest(self, coder: Api, api: Api) -> None:
        wanted = script(data={"train": NO_DATA})
        assert only_error(coder.post("/v1/jobs", json=wanted))["suggestion"] is None
        newest = upload(api)
        found = only_error(coder.post("/v1/jobs", json=wanted))
        assert (found["pointer"], found["suggestion"]) == ("/script/data/train", newest)

    def test_what_a_job_needs_is_written_with_it(self, coder: Api, api: Api, bundle: str, database: Database) -> None:
        first, second = upload(api), upload(api)
        made = submitted(coder, script(bundle, data={"train": first, "test": second, "again": first}))
        with database.read() as session:
            inputs = session.scalars(select(JobInput.resource_id).where(JobInput.job_id == made["id"])).all()
        assert sorted(inputs) == sorted([bundle, first, second])
        assert made["dataset_id"] == first

    def test_neither_can_be_deleted_before_the_job_is_over(self, coder: Api, api: Api, bundle: str) -> None:
        data = [upload(api), upload(api)]
        made = submitted(coder, script(bundle, data={"train": data[0], "test": data[1]}))["id"]
        model = submitted(coder, python(bundle))["id"]
        paths = [*(f"/v1/datasets/{name}" for name in data), f"/v1/bundles/{bundle}"]
        for path, code in zip(paths, ["conflict", "conflict", "bundle_in_use"], strict=True):
            assert made in problem(coder.delete(path), 409, code)["detail"]
        coder.post(f"/v1/jobs/{made}/cancel")
        assert [coder.delete(path).status_code for path in paths] == [204, 204, 409]
        coder.post(f"/v1/jobs/{model}/cancel")
        assert coder.delete(paths[2]).status_code == 204
        assert only_error(coder.post(f"/v1/jobs/{model}/retry"))["pointer"] == "/model/bundle"
        JobDetailView.model_validate(coder.get(f"/v1/jobs/{made}").json())

    @pytest.mark.parametrize("gone", ["bundle", "data"])
    def test_one_deleted_between_the_check_and_the_write_is_seen(
        self, coder: Api, api: Api, bundle: str, database: Database, monkeypatch: pytest.MonkeyPatch, gone: str
    ) -> None:
        data = upload(api)
        table, row_id, pointer = {
            "bundle": (Bundle, bundle, "/script/bundle"),
            "data": (Dataset, data, "/script/data/train"),
        }[gone]

        def then_delete(*arguments: Any) -> Any:
            found = submission.prepare(*arguments)
            with database.write() as session:
                session.delete(session.get_one(table, row_id))
            return found

        monkeypatch.setattr(submitter, "prepare", then_delete)
        answer = coder.post("/v1/jobs", json=script(bundle, data={"train": data}))
        assert only_error(answer)["pointer"] == pointer
        with database.read() as session:
            assert session.scalars(select(Job.id)).all() == []


@ONE_DATABASE
class TestInPlace:
    @pytest.fixture
    def settings(self, tmp_path: Path) -> Settings:
        for name in ("scans", "other"):
            (tmp_path / name).mkdir()
            (tmp_path / name / "a.csv").write_bytes(CSV)
        roots = f"scans={tmp_path}/scans:ro, other={tmp_path}/other:ro"
        return Settings.model_validate({"home": tmp_path / "home", "data_roots": roots})

    def registered(self, api: Api, uri: str) -> str:
        return str(api.post("/v1/datasets", json={"uri": uri}).json()["id"])

    def test_the_root_decides_where_it_can_run(self, coder: Api, api: Api, database: Database) -> None:
        uploaded, in_place = upload(api), self.registered(api, "root://scans/a.csv")
        made = submitted(coder, script(data={"one": uploaded, "two": in_place}))
        assert made["dataset_id"] == in_place
        add_worker_without_roots(database)
        coder.services.hosts.forget()
        waiting = coder.get(f"/v1/jobs/{made['id']}").json()["waiting"]
        assert waiting["code"] == "root_unavailable"

    def test_no_host_is_asked_for_two_roots(self, coder: Api, api: Api) -> None:
        data = {name: self.registered(api, f"root://{name}/a.csv") for name in ("scans", "other")}
        found = only_error(coder.post("/v1/jobs", json=script(data=data)))
        assert found["pointer"] == "/script/data"
        assert "other and scans" in found["message"]


def add_worker_without_roots(database: Database) -> None:
    with database.write() as session:
        worker = add_worker(session, kind="cpu")
        worker.frameworks = {"python": {"version": "3.12", "interpreter": "/usr/bin/python"}}
