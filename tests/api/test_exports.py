"""Exports over HTTP: made once, found again, refused where the format does not fit."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import orjson
import pytest

from app.api.model_views import ExportView
from app.api.views import ArtifactView
from app.artifacts.models import Artifact
from app.db import Database
from app.predictions.files import EXPORT_FILES
from app.predictions.tasks import Taken, task_error
from tests.api.answering import Answer, add_job_with_model, add_online_worker, answering
from tests.api.client import ONE_DATABASE, Api, Tenant, problem
from tests.predictions.asking import model_row

PYTHON = {"model": {"type": "python", "entrypoint": "net:build"}}


@pytest.fixture
def job_id(database: Database, tenant: Tenant) -> str:
    return add_job_with_model(database, tenant)


def export(api: Api, job_id: str, form: str = "onnx", **body: Any) -> Any:
    return api.post(f"/v1/jobs/{job_id}/exports", json={"format": form, **body})


class Maker:
    """Makes the files' rows, as a worker would."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def __call__(self, taken: Taken) -> Answer:
        names = EXPORT_FILES[orjson.loads(taken.request)["format"]]
        with self.database.write() as session:
            session.add_all(model_row(taken.job_id, name, kind="report") for name in names)
        return {"names": list(names)}


class TestExport:
    def test_the_files_are_made_and_answered(self, api: Api, job_id: str, database: Database) -> None:
        with answering(database, Maker(database)) as seen:
            answer = export(api, job_id)
        assert answer.status_code == 201, answer.text
        content = answer.json()
        ExportView.model_validate(content)
        assert (content["format"], content["state"]) == ("onnx", "succeeded")
        (made,) = content["artifacts"]
        assert ArtifactView.model_validate(made).name == "model.onnx"
        assert [taken.request for taken in seen] == ['{"format":"onnx"}']
        assert answer.headers["location"] == f"/v1/predictions/{content['id']}"
        assert api.get(answer.headers["location"]).json() == content

    def test_what_is_there_already_is_not_made_again(self, api: Api, job_id: str, database: Database) -> None:
        with answering(database, Maker(database)) as seen:
            first = export(api, job_id, "report").json()
        again = export(api, job_id, "report")  # no worker is needed for that
        assert again.status_code == 200
        content = again.json()
        ExportView.model_validate(content)
        assert (content["id"], content["state"]) == (None, "succeeded")
        assert content["artifacts"] == first["artifacts"]
        assert len(seen) == 1

    def test_a_part_of_the_files_is_not_enough(self, api: Api, job_id: str, database: Database) -> None:
        add_online_worker(database)
        with database.write() as session:
            session.add(model_row(job_id, "report.png"))
        assert export(api, job_id, "report", timeout_s=0.01).status_code == 202

    def test_one_that_is_being_made_is_waited_for(self, api: Api, job_id: str, database: Database) -> None:
        add_online_worker(database, "host-b")
        first = export(api, job_id, timeout_s=0.01)
        second = export(api, job_id, timeout_s=0.01)
        other = export(api, job_id, "report", timeout_s=0.01)
        assert (first.status_code, second.status_code) == (202, 202)
        ExportView.model_validate(first.json())
        assert second.json()["id"] == first.json()["id"]
        assert other.json()["id"] != first.json()["id"]
        with answering(database, Maker(database)) as seen:
            assert export(api, job_id).status_code == 201
            assert export(api, job_id, "report").status_code in {200, 201}
        assert len(seen) == 2
        done = api.get(first.headers["location"]).json()
        assert [artifact["name"] for artifact in done["artifacts"]] == ["model.onnx"]

    def test_asked_for_at_the_same_time_it_is_made_once(self, api: Api, job_id: str, database: Database) -> None:
        add_online_worker(database)
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: export(api, job_id, timeout_s=0.01), range(8)))
        assert {answer.status_code for answer in answers} == {202}
        assert len({answer.json()["id"] for answer in answers}) == 1

    def test_a_file_that_was_removed_since_is_not_shown(self, api: Api, job_id: str, database: Database) -> None:
        with answering(database, Maker(database)):
            address = export(api, job_id).headers["location"]
        with database.write() as session:
            session.delete(session.get_one(Artifact, (job_id, "model.onnx")))
        assert api.get(address).json()["artifacts"] == []


@ONE_DATABASE
class TestPythonModel:
    @pytest.mark.parametrize(
        ("framework", "form", "runs"),
        [
            ("torch", "onnx", "torch"),
            ("tensorflow", "keras", "tensorflow"),
            ("torch", "report", None),
            ("tensorflow", "tensorboard", None),
        ],
    )
    def test_its_code_runs_for_the_model_itself_alone(
        self, api: Api, database: Database, tenant: Tenant, framework: str, form: str, runs: str | None
    ) -> None:
        job_id = add_job_with_model(database, tenant, framework=framework, effective_spec=PYTHON)
        with answering(database, Maker(database)) as seen:
            assert export(api, job_id, form).status_code == 201
        assert [taken.framework for taken in seen] == [runs]

    @pytest.mark.parametrize(
        ("framework", "form", "other"), [("torch", "keras", "onnx"), ("tensorflow", "onnx", "keras")]
    )
    def test_the_format_of_the_other_framework(
        self, api: Api, database: Database, tenant: Tenant, framework: str, form: str, other: str
    ) -> None:
        add_online_worker(database)
        job_id = add_job_with_model(database, tenant, framework=framework, effective_spec=PYTHON)
        detail = problem(export(api, job_id, form), 409, "wrong_framework")["detail"]
        assert detail == (
            f"A python model of {framework} cannot be exported as '{form}'; for example '{other}' can be."
        )


@ONE_DATABASE
class TestRefused:
    def test_keras_is_for_tensorflow(self, api: Api, job_id: str, database: Database, tenant: Tenant) -> None:
        add_online_worker(database)
        detail = problem(export(api, job_id, "keras"), 409, "wrong_framework")["detail"]
        assert detail == "A model of torch cannot be exported as 'keras'; for example 'onnx' can be."
        theirs = add_job_with_model(database, tenant, framework="tensorflow")
        assert export(api, theirs, "keras", timeout_s=0.01).status_code == 202

    def test_no_worker_has_tensorflow(self, api: Api, database: Database, tenant: Tenant) -> None:
        job_id = add_job_with_model(database, tenant, framework="tensorflow")
        with database.write() as session:
            session.connection().exec_driver_sql("DELETE FROM workers")
        assert "with tensorflow" in problem(export(api, job_id, "keras"), 503, "no_worker_online")["detail"]

    def test_a_job_without_a_model(self, api: Api, database: Database, tenant: Tenant) -> None:
        job_id = add_job_with_model(database, tenant, model=False, state="failed")
        assert problem(export(api, job_id), 409, "no_model")["state"] == "failed"

    def test_a_failure_has_its_reason(self, api: Api, job_id: str, database: Database) -> None:
        error = task_error("export_failed", "The export 'onnx' failed: it gives other outputs.")
        with answering(database, lambda _: {"error": error}):
            assert problem(export(api, job_id), 500, "export_failed")["detail"] == error["message"]

    @pytest.mark.parametrize("body", [{}, {"format": "pickle"}, {"format": "onnx", "opset": 17}, {"format": None}])
    def test_a_body_of_another_shape(self, api: Api, job_id: str, body: object) -> None:
        problem(api.post(f"/v1/jobs/{job_id}/exports", json=body), 422, "invalid_request")
