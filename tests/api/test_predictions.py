"""Predictions over HTTP: what is asked and refused, what is waited for, and how answers look."""

import csv
import io
import math
from typing import Any

import pytest
from fastapi import FastAPI

from app.api.model_views import PredictionView
from app.broker import CHANNEL_TASKS
from app.db import Database
from app.ids import new_id
from app.main import create_app
from app.predictions.models import ModelTask
from app.predictions.tasks import Taken, task_error
from app.settings import Settings
from app.storage import Storage
from tests.api.answering import CLASSES, add_job_with_model, add_online_worker, answering
from tests.api.client import ONE_DATABASE, Api, Tenant, problem, running
from tests.api.conftest import QUICK
from tests.fakes import FakeClock
from tests.rows import add_worker

WARNING = {"row": 1, "column": "b", "message": "The model has never seen 'x'."}
ROWS = [{"a": 1.5, "b": "x"}]
PYTHON = {"model": {"type": "python", "entrypoint": "net:build"}}


@pytest.fixture
def job_id(database: Database, tenant: Tenant) -> str:
    return add_job_with_model(database, tenant)


def classes(_taken: Taken) -> dict[str, Any]:
    return CLASSES


def values(_taken: Taken) -> dict[str, Any]:
    return {"values": [0.1, "NaN"], "warnings": [WARNING]}


def ask(api: Api, job_id: str, **options: Any) -> Any:
    return api.post(f"/v1/jobs/{job_id}/predict", **({"json": {"rows": ROWS}} | options))


class TestAnswer:
    def test_labels_and_probabilities(self, api: Api, job_id: str, database: Database) -> None:
        with answering(database, classes) as seen:
            answer = ask(api, job_id)
        assert answer.status_code == 200, answer.text
        content = answer.json()
        PredictionView.model_validate(content)
        assert (content["labels"], content["probabilities"]) == (["setosa"], [{"setosa": 0.75, "virginica": 0.25}])
        assert (content["values"], content["warnings"], content["error"]) == (None, [], None)
        assert content["model"] == {"job": job_id, "framework": "torch"}
        assert [taken.request for taken in seen] == ['{"rows":[{"a":1.5,"b":"x"}]}']

    def test_values_and_warnings(self, api: Api, job_id: str, database: Database) -> None:
        with answering(database, values):
            content = ask(api, job_id).json()
        PredictionView.model_validate(content)
        assert (content["labels"], content["values"]) == (None, [0.1, "NaN"])
        assert content["warnings"] == [WARNING]

    def test_rows_as_csv(self, api: Api, job_id: str, database: Database) -> None:
        table = '\ufeffa,b\r\n1.5,"x,\r\ny"\r\n'
        with answering(database, classes) as seen:
            answer = ask(api, job_id, json=None, content=table.encode(), headers={"Content-Type": "text/csv"})
        assert answer.status_code == 200, answer.text
        assert seen[0].request == '{"csv":"a,b\\r\\n1.5,\\"x,\\r\\ny\\"\\r\\n"}'

    def test_a_viewer_may_ask(self, api: Api, job_id: str, database: Database, tenant: Tenant) -> None:
        with answering(database, classes):
            assert ask(api.with_key(tenant.viewer), job_id).status_code == 200

    @ONE_DATABASE
    def test_many_at_once_get_their_own_answers(self, api: Api, job_id: str, database: Database) -> None:
        def echo(taken: Taken) -> dict[str, Any]:
            return {"values": [len(taken.request)], "warnings": []}

        bodies = [{"rows": [{"a": "x" * size}]} for size in range(20)]
        with answering(database, echo):
            answers = api.together([("POST", f"/v1/jobs/{job_id}/predict", {"json": body}) for body in bodies])
        first = answers[0].json()["values"][0]
        assert [answer.json()["values"] for answer in answers] == [[first + size] for size in range(20)]


@ONE_DATABASE
class TestCsvAnswer:
    def table(self, api: Api, job_id: str) -> list[list[str]]:
        answer = ask(api, job_id, headers={"Accept": "text/csv"})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "text/csv; charset=utf-8")
        assert answer.text.endswith("\r\n")
        return list(csv.reader(io.StringIO(answer.text, newline="")))

    def test_a_label_and_a_column_for_each_class(self, api: Api, job_id: str, database: Database) -> None:
        with answering(database, classes):
            table = self.table(api, job_id)
        assert table == [["label", "probability_setosa", "probability_virginica"], ["setosa", "0.75", "0.25"]]

    def test_values_that_are_no_numbers_are_words(self, api: Api, job_id: str, database: Database) -> None:
        with answering(database, values):
            table = self.table(api, job_id)
        assert table == [["value"], ["0.1"], ["NaN"]]
        assert math.isnan(float(table[2][0]))

    def test_labels_are_quoted_as_rfc_4180_asks(self, api: Api, job_id: str, database: Database) -> None:
        name = 'big, "very"\nbig'
        with answering(database, lambda _: {"labels": [name], "probabilities": [{name: 1.0}], "warnings": []}):
            assert self.table(api, job_id) == [["label", f"probability_{name}"], [name, "1.0"]]


class TestLater:
    def test_what_takes_longer_is_202_and_can_be_read_later(self, api: Api, job_id: str, database: Database) -> None:
        add_online_worker(database, "host-b")
        answer = ask(api, job_id, json={"rows": ROWS, "timeout_s": 0.01})
        assert answer.status_code == 202, answer.text
        PredictionView.model_validate(answer.json())
        assert (answer.json()["state"], answer.headers["retry-after"]) == ("queued", "1")
        address = answer.headers["location"]
        assert address == f"/v1/predictions/{answer.json()['id']}"
        assert api.get(address).json() == answer.json()
        with answering(database, classes):
            done = ask(api, job_id)  # behind the first one, so that is answered too
        assert done.status_code == 200
        later = api.get(address)
        assert (later.status_code, later.json()["state"], later.json()["labels"]) == (200, "succeeded", ["setosa"])
        assert api.get(address, headers={"Accept": "text/csv"}).text.startswith("label,")

    @ONE_DATABASE
    def test_the_time_to_wait_can_stand_in_the_query(self, api: Api, job_id: str, database: Database) -> None:
        add_online_worker(database)
        answer = ask(
            api,
            job_id,
            json=None,
            content=b"a\n1\n",
            headers={"Content-Type": "text/csv"},
            params={"timeout_s": "0.01"},
        )
        assert answer.status_code == 202

    def test_one_that_failed_later_says_why(self, api: Api, job_id: str, database: Database) -> None:
        add_online_worker(database, "host-b")
        address = ask(api, job_id, json={"rows": ROWS, "timeout_s": 0.01}).headers["location"]
        error = task_error("invalid_rows", "Row 1: there is no column 'b'.")
        with answering(database, lambda _: {"error": error}):
            problem(ask(api, job_id), 422, "invalid_rows")
        answer = api.get(address).json()
        PredictionView.model_validate(answer)
        assert (answer["state"], answer["error"]) == ("failed", error)

    def test_another_project_does_not_see_it(self, api: Api, job_id: str, database: Database, other: Tenant) -> None:
        add_online_worker(database)
        address = ask(api, job_id, json={"rows": ROWS, "timeout_s": 0.01}).headers["location"]
        stranger = api.with_key(other.admin)
        theirs = problem(stranger.get(address), 404, "not_found")["detail"]
        missing = new_id("tsk")
        nobodys = problem(stranger.get(f"/v1/predictions/{missing}"), 404, "not_found")["detail"]
        assert theirs.replace(address.rpartition("/")[2], "") == nobodys.replace(missing, "")


class TestFailed:
    @pytest.mark.parametrize(
        ("code", "status"),
        [
            ("invalid_rows", 422),
            ("answer_too_large", 413),
            ("model_unreadable", 500),
            ("task_lost", 503),
            ("task_expired", 503),
        ],
    )
    @ONE_DATABASE
    def test_each_code_has_its_status(self, api: Api, job_id: str, database: Database, code: str, status: int) -> None:
        with answering(database, lambda _: {"error": task_error(code, "So it is.")}):
            assert problem(ask(api, job_id), status, code)["detail"] == "So it is."

    def test_rows_and_columns_are_named(self, api: Api, job_id: str, database: Database) -> None:
        found = {"pointer": "/rows/0/b", "message": "'x' is no number.", "row": 1, "column": "b"}
        with answering(database, lambda _: {"error": task_error("invalid_rows", "Row 1.", [found])}):
            (shown,) = problem(ask(api, job_id), 422, "invalid_rows")["errors"]
        assert shown == found | {"suggestion": None, "place": "body"}

    @ONE_DATABASE
    def test_a_fault_of_the_worker_tells_nothing_of_its_inside(self, api: Api, job_id: str, database: Database) -> None:
        with answering(database, lambda _: {"error": task_error("internal", "/home/ada/secret: no such file")}):
            assert "secret" not in str(problem(ask(api, job_id), 500, "internal"))


class TestPythonModel:
    def test_its_code_waits_for_a_worker_that_runs_its_framework(
        self, api: Api, database: Database, tenant: Tenant
    ) -> None:
        job_id = add_job_with_model(database, tenant, framework="tensorflow", effective_spec=PYTHON)
        with answering(database, classes) as seen:
            assert ask(api, job_id).status_code == 200
        assert [taken.framework for taken in seen] == ["tensorflow"]

    def test_no_worker_runs_its_framework(self, api: Api, database: Database, tenant: Tenant) -> None:
        job_id = add_job_with_model(database, tenant, framework="tensorflow", effective_spec=PYTHON)
        with database.write() as session:
            add_worker(session, kind="cpu").frameworks = {"torch": {"version": "2.13.0"}}
        assert "with tensorflow" in problem(ask(api, job_id), 503, "no_worker_online")["detail"]

    def test_a_fault_of_its_code_is_told(self, api: Api, database: Database, tenant: Tenant) -> None:
        job_id = add_job_with_model(database, tenant, effective_spec=PYTHON)
        error = task_error("model_failed", "The model's forward failed: KeyError: 'weather' (net.py, line 7)")
        with answering(database, lambda _: {"error": error}):
            assert problem(ask(api, job_id), 422, "model_failed")["detail"] == error["message"]


class TestRefused:
    def test_a_job_without_a_model(self, api: Api, database: Database, tenant: Tenant) -> None:
        job_id = add_job_with_model(database, tenant, model=False, state="queued")
        add_online_worker(database)
        document = problem(ask(api, job_id), 409, "no_model")
        assert document["state"] == "queued"
        assert "is queued and has no model" in document["detail"]

    def test_no_worker_is_online(self, api: Api, job_id: str, database: Database, clock: FakeClock) -> None:
        answer = ask(api, job_id)
        assert "No worker is online" in " ".join(problem(answer, 503, "no_worker_online")["detail"].split())
        assert answer.headers["retry-after"] == "5"
        add_online_worker(database)
        # A worker that has just come must not cost a refusal, whatever was seen a moment ago.
        assert ask(api, job_id, json={"rows": ROWS, "timeout_s": 0.01}).status_code == 202
        clock.advance(60)
        problem(ask(api, job_id), 503, "no_worker_online")

    def test_too_many_wait(self, settings: Settings, database: Database, storage: Storage, tenant: Tenant) -> None:
        rung: list[tuple[str, str]] = []
        app = create_app(
            settings.model_copy(update={"max_queued_predictions": 2}), database, storage, Ears(rung), pace=QUICK
        )
        with running(app, tenant.user) as api:
            job_id = add_job_with_model(database, tenant)
            add_online_worker(database)
            quick = {"rows": ROWS, "timeout_s": 0.01}
            statuses = [ask(api, job_id, json=quick).status_code for _ in range(2)]
            assert statuses == [202, 202]
            assert problem(ask(api, job_id, json=quick), 429, "too_many_predictions")["limit"] == 2
        assert rung.count((CHANNEL_TASKS, "predict")) == 2

    @ONE_DATABASE
    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({}, "/rows"),
            ({"rows": []}, "/rows"),
            ({"rows": {"a": 1}}, "/rows"),
            ({"rows": [[1, 2]]}, "/rows/0"),
            ({"rows": ROWS, "timeout_s": 0}, "/timeout_s"),
            ({"rows": ROWS, "timeout_s": 61}, "/timeout_s"),
            ({"rows": ROWS, "timeout_s": "1"}, "/timeout_s"),
            ({"rows": ROWS, "row": 1}, "/row"),
            ([], ""),
        ],
    )
    def test_a_body_of_another_shape(self, api: Api, job_id: str, body: object, pointer: str) -> None:
        document = problem(ask(api, job_id, json=body), 422, "invalid_request")
        assert pointer in [item["pointer"] for item in document["errors"]]

    @ONE_DATABASE
    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"", "has no rows"),
            (b"a,b\n", "has no rows"),
            (b"\n\n", "has no rows"),
            (b"a\n\xff\n", "not UTF-8 (byte 3)"),
            (b"a\n" + b"x" * 140_000 + b"\n", "larger than"),
        ],
    )
    def test_a_table_that_is_none(self, api: Api, job_id: str, content: bytes, said: str) -> None:
        answer = ask(api, job_id, json=None, content=content, headers={"Content-Type": "text/csv"})
        assert answer.status_code in {400, 413, 422}
        assert said in answer.json()["detail"]

    @ONE_DATABASE
    @pytest.mark.parametrize("body", [b'{"rows": [{"a": NaN}]}', b'{"rows": [{"a": 1, "a": 2}]}', b"{", b"[" * 5000])
    def test_what_is_not_json(self, api: Api, job_id: str, body: bytes) -> None:
        answer = ask(api, job_id, json=None, content=body, headers={"Content-Type": "application/json"})
        problem(answer, 400, "malformed_json")

    @ONE_DATABASE
    def test_nesting_beyond_reason(self, api: Api, job_id: str) -> None:
        body = b'{"rows": [{"a": ' + b"[" * 300 + b"]" * 300 + b"}]}"
        answer = ask(api, job_id, json=None, content=body, headers={"Content-Type": "application/json"})
        problem(answer, 400, "malformed_json")

    @ONE_DATABASE
    def test_a_thousand_broken_rows_are_not_told_one_by_one(self, api: Api, job_id: str) -> None:
        document = problem(ask(api, job_id, json={"rows": [1] * 1000}), 422, "invalid_request")
        assert len(document["errors"]) == 100

    @ONE_DATABASE
    def test_another_content_type(self, api: Api, job_id: str) -> None:
        answer = ask(api, job_id, json=None, content=b"a: 1", headers={"Content-Type": "application/yaml"})
        problem(answer, 415, "unsupported_media_type")


@ONE_DATABASE
class TestLimits:
    @pytest.fixture
    def settings(self, settings: Settings) -> Settings:
        return settings.model_copy(update={"max_predict_rows": 3, "max_predict_bytes": 30_000})

    def test_rows(self, api: Api, job_id: str, database: Database) -> None:
        document = problem(ask(api, job_id, json={"rows": ROWS * 4}), 413, "too_many_rows")
        assert document["limit"] == 3
        table = b"a\n" + b"1\n" * 4
        answer = ask(api, job_id, json=None, content=table, headers={"Content-Type": "text/csv"})
        assert problem(answer, 413, "too_many_rows")["limit"] == 3
        with answering(database, classes):
            assert ask(api, job_id, json={"rows": ROWS * 3}).status_code == 200

    def test_bytes_which_are_more_than_other_bodies_may_have(self, api: Api, job_id: str, database: Database) -> None:
        with answering(database, classes):
            assert ask(api, job_id, json={"rows": [{"a": "x" * 25_000}]}).status_code == 200
        answer = ask(api, job_id, json={"rows": [{"a": "x" * 31_000}]})
        assert problem(answer, 413, "body_too_large")["limit"] == 30_000

    def test_the_deadline_is_a_setting(self, app: FastAPI, api: Api, job_id: str, database: Database) -> None:
        assert app.state.services.limits.predict_deadline_s == 600.0
        add_online_worker(database)
        task_id = ask(api, job_id, json={"rows": ROWS, "timeout_s": 0.01}).json()["id"]
        with database.read() as session:
            task = session.get_one(ModelTask, task_id)
        assert (task.deadline - task.created_at).total_seconds() == 600.0


class Ears:
    """A bell whose rings a test can read."""

    healthy = None

    def __init__(self, rung: list[tuple[str, str]]) -> None:
        self._rung = rung

    def ring(self, channel: str, message: str = "") -> None:
        self._rung.append((channel, message))
