"""The same key twice is one job, whoever asks when."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from app.broker import Bell
from app.db import Database
from app.jobs.models import Job
from app.jobs.states import JobState
from app.main import create_app
from app.settings import Settings
from app.storage import Storage
from tests.api.client import ONE_DATABASE, SPEC, Api, Tenant, problem, running
from tests.fakes import FakeClock

KEY = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}


@pytest.fixture
def restarted(
    settings: Settings, database: Database, storage: Storage, clock: FakeClock, tenant: Tenant
) -> Iterator[Api]:
    """Another process of the API over the same database."""
    with running(create_app(settings, database, storage, Bell(None), clock=clock), tenant.user) as client:
        yield client


def count_jobs(database: Database) -> int:
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(Job)) or 0


class TestIdempotency:
    def test_a_repeat_gets_the_first_answer(self, api: Api, database: Database) -> None:
        first = api.post("/v1/jobs", json=SPEC, headers=KEY)
        second = api.post("/v1/jobs", json=SPEC, headers=KEY)
        assert "idempotency-replayed" not in first.headers
        assert second.headers["idempotency-replayed"] == "true"
        assert (second.status_code, second.content) == (201, first.content)
        assert second.headers["location"] == first.headers["location"]
        assert count_jobs(database) == 1

    def test_a_repeat_after_a_restart_too(self, api: Api, restarted: Api, database: Database) -> None:
        first = api.post("/v1/jobs", json=SPEC, headers=KEY)
        second = restarted.post("/v1/jobs", json=SPEC, headers=KEY)
        assert second.headers["idempotency-replayed"] == "true"
        assert second.content == first.content
        assert count_jobs(database) == 1

    def test_a_repeat_long_after_still_shows_the_job_as_it_was_accepted(self, api: Api, database: Database) -> None:
        first = api.post("/v1/jobs", json=SPEC | {"name": "a", "tags": {"b": "c"}}, headers=KEY)
        with database.write() as session:
            job = session.get_one(Job, first.json()["id"])
            job.state, job.attempt, job.run_s, job.cause = JobState.FAILED.value, 2, 9.5, "diverged"
            job.progress, job.last_metrics = {"epoch": 3}, {"loss": "NaN"}
        second = api.post("/v1/jobs", json=SPEC | {"name": "a", "tags": {"b": "c"}}, headers=KEY)
        assert second.content == first.content

    def test_a_repeat_gets_its_answer_though_it_would_be_refused_now(self, api: Api) -> None:
        first = api.post("/v1/jobs", json=SPEC | {"data": "iris"}, headers=KEY)
        object.__setattr__(api.services.limits, "max_queued_jobs", 1)
        second = api.post("/v1/jobs", json=SPEC | {"data": "iris"}, headers=KEY)
        assert second.content == first.content

    @pytest.mark.parametrize("requests", [8])
    def test_the_same_at_the_same_time_is_one_job(self, api: Api, database: Database, requests: int) -> None:
        answers = api.together([("POST", "/v1/jobs", {"json": SPEC, "headers": KEY})] * requests)
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
        assert count_jobs(database) == 1

    def test_the_same_at_two_processes_is_one_job(self, api: Api, restarted: Api, database: Database) -> None:
        for round_ in range(5):
            headers = {"Idempotency-Key": f"round-{round_}"}
            with ThreadPoolExecutor(2) as pool:
                sent = [pool.submit(client.post, "/v1/jobs", json=SPEC, headers=headers) for client in (api, restarted)]
                answers = [request.result() for request in sent]
            assert [answer.status_code for answer in answers] == [201, 201]
            assert len({answer.json()["id"] for answer in answers}) == 1
        assert count_jobs(database) == 5

    def test_another_body_under_the_same_key_is_refused(self, api: Api, database: Database) -> None:
        api.post("/v1/jobs", json=SPEC, headers=KEY)
        problem(api.post("/v1/jobs", json=SPEC | {"priority": 1}, headers=KEY), 422, "idempotency_mismatch")
        assert count_jobs(database) == 1

    def test_spaces_and_the_order_of_keys_are_not_another_body(self, api: Api, database: Database) -> None:
        first = api.post("/v1/jobs", json=SPEC, headers=KEY)
        turned = dict(reversed(SPEC.items()))
        assert api.post("/v1/jobs", json=turned, headers=KEY).json()["id"] == first.json()["id"]
        assert count_jobs(database) == 1

    def test_a_key_belongs_to_its_api_key(self, api: Api, tenant: Tenant, other: Tenant, database: Database) -> None:
        for secret in (tenant.user, tenant.admin, other.user):
            answer = api.with_key(secret).post("/v1/jobs", json=SPEC, headers=KEY)
            assert "idempotency-replayed" not in answer.headers
        assert count_jobs(database) == 3

    @ONE_DATABASE
    def test_a_refusal_is_not_kept(self, api: Api) -> None:
        problem(api.post("/v1/jobs", json=SPEC | {"epochs": 1}, headers=KEY), 422, "invalid_spec")
        assert api.post("/v1/jobs", json=SPEC, headers=KEY).status_code == 201

    @ONE_DATABASE
    @pytest.mark.parametrize("headers", [KEY, {}])
    def test_a_body_nested_beyond_reason_is_refused(self, api: Api, headers: dict[str, str]) -> None:
        deep = b'{"model": ' + b"[" * 900 + b"]" * 900 + b"}"
        answer = api.post("/v1/jobs", content=deep, headers=headers | {"Content-Type": "application/json"})
        assert answer.status_code in {400, 422}, answer.text
        assert answer.headers["content-type"] == "application/problem+json"

    @ONE_DATABASE
    def test_without_a_key_each_is_a_job(self, api: Api, database: Database) -> None:
        assert api.submit()["id"] != api.submit()["id"]
        assert count_jobs(database) == 2


CSV = b"a,b,label\n1,2,yes\n3,4,no\n"
AS_CSV = KEY | {"Content-Type": "text/csv"}


def upload(api: Api, content: bytes = CSV, name: str = "toy") -> httpx.Response:
    return api.post(f"/v1/datasets?name={name}", content=content, headers=AS_CSV)


def listed(api: Api) -> list[str]:
    return [dataset["id"] for dataset in api.get("/v1/datasets").json()["data"]]


class TestUpload:
    def test_a_repeat_gets_the_first_answer(self, api: Api, storage: Storage) -> None:
        first, second = upload(api), upload(api)
        assert "idempotency-replayed" not in first.headers
        assert second.headers["idempotency-replayed"] == "true"
        assert (second.status_code, second.content) == (201, first.content)
        assert second.headers["location"] == first.headers["location"]
        assert listed(api) == [first.json()["id"]]
        assert len(storage.list()) == 1

    def test_a_form_with_the_same_table_and_name_is_a_repeat(self, api: Api) -> None:
        first = upload(api)
        form = api.post("/v1/datasets", files={"file": ("x.csv", CSV)}, data={"name": "toy"}, headers=KEY)
        assert form.content == first.content

    def test_the_same_at_the_same_time_is_one_data_set_and_one_file(self, api: Api, storage: Storage) -> None:
        sent = ("POST", "/v1/datasets", {"content": CSV, "headers": AS_CSV})
        answers = api.together([sent] * 6)
        assert {answer.status_code for answer in answers} == {201}
        assert sum("idempotency-replayed" not in answer.headers for answer in answers) == 1
        assert listed(api) == [answers[0].json()["id"]]
        assert len(storage.list()) == 1

    @pytest.mark.parametrize("change", [{"content": CSV + b"5,6,no\n"}, {"name": "another"}])
    def test_another_table_or_name_under_the_same_key_is_refused(self, api: Api, change: dict[str, Any]) -> None:
        first = upload(api)
        problem(upload(api, **change), 422, "idempotency_mismatch")
        assert listed(api) == [first.json()["id"]]

    def test_a_key_that_made_a_job_makes_no_data_set(self, api: Api) -> None:
        api.post("/v1/jobs", json=SPEC, headers=KEY)
        problem(upload(api), 422, "idempotency_mismatch")
        assert listed(api) == []

    def test_one_that_was_deleted_does_not_come_back(self, api: Api, storage: Storage) -> None:
        first = upload(api)
        api.delete(first.headers["location"])
        problem(upload(api), 409, "conflict")
        assert (listed(api), storage.list()) == ([], [])

    def test_a_refusal_is_not_kept(self, api: Api) -> None:
        problem(upload(api, b"a,a\n1,2\n"), 422, "invalid_data")
        assert upload(api).status_code == 201

    def test_a_key_belongs_to_its_api_key(self, api: Api, other: Tenant) -> None:
        first = upload(api)
        second = upload(api.with_key(other.user))
        assert "idempotency-replayed" not in second.headers
        assert second.json()["id"] != first.json()["id"]
