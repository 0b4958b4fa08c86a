"""Asking a job to stop, to go on, and to be made again."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from app.api.derivation import merge_patch
from app.api.views import JobView
from app.checkpoints.models import Checkpoint
from app.db import Database
from app.jobs.models import Job, JournalRow
from app.jobs.states import JobState
from app.storage import Storage
from tests.api.client import ONE_DATABASE, SPEC, Api, Tenant, problem
from tests.api.stored import leave_checkpoint, set_state

NOBODY = "/v1/jobs/job_01k0000000000000000000000a"
KEY = {"Idempotency-Key": "0e5d1a4c-2c0b-4b3e-8f2e-0d6f6a7b8c9d"}


def count(database: Database) -> int:
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(Job)) or 0


class TestCancel:
    def test_a_waiting_job_is_cancelled_at_once(self, api: Api) -> None:
        job = api.submit()
        answer = api.post(f"/v1/jobs/{job['id']}/cancel")
        assert answer.status_code == 200
        JobView.model_validate(answer.json())
        assert answer.json()["state"] == "cancelled"

    def test_a_running_job_is_asked_to_stop(self, api: Api, database: Database) -> None:
        job = api.submit()
        set_state(database, job["id"], JobState.RUNNING)
        answer = api.post(f"/v1/jobs/{job['id']}/cancel")
        assert answer.status_code == 202
        assert (answer.json()["state"], answer.json()["stop_requested"]) == ("running", "cancel")

    def test_asking_again_is_harmless(self, api: Api, database: Database) -> None:
        job = api.submit()
        answers = [api.post(f"/v1/jobs/{job['id']}/cancel") for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        with database.read() as session:
            events = session.scalar(select(func.count()).where(JournalRow.job_id == job["id"]))
        assert events == 2

    def test_a_finished_job_is_a_conflict_and_stays_as_it_is(self, api: Api, database: Database) -> None:
        job = api.submit()
        set_state(database, job["id"], JobState.SUCCEEDED, finished_at=datetime(2026, 1, 31, 13, tzinfo=UTC))
        shown = problem(api.post(f"/v1/jobs/{job['id']}/cancel"), 409, "state_conflict")
        assert (shown["state"], shown["legal"]) == ("succeeded", ["clone"])
        assert api.get(f"/v1/jobs/{job['id']}").json()["state"] == "succeeded"

    def test_a_job_of_nobody_is_404(self, api: Api, tenant: Tenant) -> None:
        problem(api.with_key(tenant.admin).post(f"{NOBODY}/cancel"), 404, "not_found")


class TestPauseAndResume:
    def test_a_waiting_job_is_paused_at_once_and_goes_on_when_asked(self, api: Api) -> None:
        job = api.submit()
        paused = api.post(f"/v1/jobs/{job['id']}/pause")
        assert (paused.status_code, paused.json()["state"]) == (200, "paused")
        JobView.model_validate(paused.json())
        resumed = api.post(f"/v1/jobs/{job['id']}/resume")
        assert (resumed.status_code, resumed.json()["state"]) == (202, "queued")
        assert resumed.json()["queued_at"] == job["queued_at"], "its old place"

    def test_a_running_job_is_asked_and_may_be_asked_again(self, api: Api, database: Database) -> None:
        job = api.submit()
        set_state(database, job["id"], JobState.RUNNING)
        answers = [api.post(f"/v1/jobs/{job['id']}/pause") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [202, 202]
        assert (answers[1].json()["state"], answers[1].json()["stop_requested"]) == ("running", "pause")

    def test_what_is_so_already_is_200(self, api: Api) -> None:
        job = api.submit()
        assert api.post(f"/v1/jobs/{job['id']}/resume").status_code == 200
        answers = [api.post(f"/v1/jobs/{job['id']}/pause") for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 200]

    def test_a_pause_under_way_is_taken_back(self, api: Api, database: Database) -> None:
        job = api.submit()
        set_state(database, job["id"], JobState.RUNNING)
        api.post(f"/v1/jobs/{job['id']}/pause")
        answer = api.post(f"/v1/jobs/{job['id']}/resume")
        assert (answer.status_code, answer.json()["stop_requested"]) == (202, None)

    @pytest.mark.parametrize("asked", ["pause", "resume"])
    @pytest.mark.parametrize(
        ("state", "legal"),
        [
            (JobState.SUCCEEDED, ["clone"]),
            (JobState.FAILED, ["retry", "clone"]),
            (JobState.CANCELLED, ["retry", "clone"]),
        ],
    )
    def test_after_the_end_it_is_409_with_what_is_legal(
        self, api: Api, database: Database, asked: str, state: JobState, legal: list[str]
    ) -> None:
        job = api.submit()
        set_state(database, job["id"], state)
        shown = problem(api.post(f"/v1/jobs/{job['id']}/{asked}"), 409, "state_conflict")
        assert (shown["state"], shown["legal"]) == (state.value, legal)
        assert f"Legal now: {', '.join(legal)}." in shown["detail"]

    @pytest.mark.parametrize("asked", ["pause", "resume", "retry", "clone"])
    def test_of_nobody_and_of_another_project_it_is_404(self, api: Api, other: Tenant, asked: str) -> None:
        job = api.submit()
        problem(api.post(f"{NOBODY}/{asked}"), 404, "not_found")
        problem(api.with_key(other.user).post(f"/v1/jobs/{job['id']}/{asked}"), 404, "not_found")

    @ONE_DATABASE
    @pytest.mark.parametrize("asked", ["pause", "resume", "retry", "clone"])
    def test_a_viewer_may_not(self, api: Api, tenant: Tenant, asked: str) -> None:
        job = api.submit()
        problem(api.with_key(tenant.viewer).post(f"/v1/jobs/{job['id']}/{asked}"), 403, "forbidden")


class TestRetry:
    def failed(self, api: Api, database: Database, **changes: Any) -> dict[str, Any]:
        job = api.submit(**changes)
        set_state(database, job["id"], JobState.FAILED, cause="user_code")
        return job

    def test_it_is_a_new_job_with_the_same_spec_and_a_parent(self, api: Api, database: Database) -> None:
        job = self.failed(api, database, name="again", tags={"team": "birds"})
        answer = api.post(f"/v1/jobs/{job['id']}/retry")
        assert answer.status_code == 201
        child = answer.json()
        JobView.model_validate(child)
        assert answer.headers["location"] == f"/v1/jobs/{child['id']}"
        assert child["parent"] == {"job": job["id"], "how": "retry", "checkpoint": None}
        assert (child["state"], child["attempt"], child["name"], child["tags"]) == (
            "queued",
            0,
            "again",
            {"team": "birds"},
        )
        assert (child["spec"], child["effective_spec"]) == (job["spec"], job["effective_spec"])
        read = api.get(f"/v1/jobs/{child['id']}").json()
        assert {name: read[name] for name in child} == child
        assert job["parent"] is None

    @pytest.mark.parametrize(
        ("body", "step"),
        [({}, 30), ({"from": "last"}, 30), ({"from": "best"}, 20), ({"from": "start"}, None)],
    )
    def test_it_goes_on_from_the_checkpoint_that_is_asked_for(
        self, api: Api, database: Database, storage: Storage, tmp_path: Path, body: dict[str, str], step: int | None
    ) -> None:
        job = self.failed(api, database)
        for at in (10, 20, 30):
            leave_checkpoint(database, storage, tmp_path, job["id"], at, best=at == 20)
        child = api.post(f"/v1/jobs/{job['id']}/retry", json=body).json()
        assert child["parent"] == {"job": job["id"], "how": "retry", "checkpoint": step}
        with database.read() as session:
            row = session.get_one(Job, child["id"])
        assert (row.parent_job_id, row.parent_how, row.parent_step) == (job["id"], "retry", step)

    def test_without_a_checkpoint_it_starts_anew_and_says_so(self, api: Api, database: Database) -> None:
        job = self.failed(api, database)
        assert "starts from the beginning" in api.post(f"/v1/jobs/{job['id']}/retry").json()["warnings"][0]
        shown = problem(api.post(f"/v1/jobs/{job['id']}/retry", json={"from": "best"}), 422, "invalid_request")
        assert (shown["errors"][0]["pointer"], shown["errors"][0]["suggestion"]) == ("/from", "last")

    def test_a_cancel_under_way_leaves_only_what_is_legal_then(self, api: Api, database: Database) -> None:
        job = api.submit()
        set_state(database, job["id"], JobState.RUNNING, stop_requested="cancel")
        shown = problem(api.post(f"/v1/jobs/{job['id']}/retry"), 409, "state_conflict")
        assert (shown["state"], shown["legal"]) == ("running", ["cancel", "clone"])

    def test_one_with_a_checkpoint_needs_no_other_weights(
        self, api: Api, database: Database, storage: Storage, tmp_path: Path
    ) -> None:
        """The job that it was initialized from has trained on, and dropped the checkpoint that it named."""
        source = api.submit()
        leave_checkpoint(database, storage, tmp_path, source["id"], 10)
        job = self.failed(api, database, initialize_from={"job": source["id"], "checkpoint": 10})
        leave_checkpoint(database, storage, tmp_path, job["id"], 20)
        with database.write() as session:
            session.delete(session.get_one(Checkpoint, (source["id"], 10)))
        answer = api.post(f"/v1/jobs/{job['id']}/retry")
        assert answer.status_code == 201, answer.text
        assert answer.json()["parent"]["checkpoint"] == 20
        anew = api.post(f"/v1/jobs/{job['id']}/retry", json={"from": "start"})
        assert problem(anew, 422, "invalid_spec")["errors"][0]["pointer"] == "/initialize_from/checkpoint"

    def test_what_auto_meant_then_stays(self, api: Api, database: Database) -> None:
        job = api.submit(device_type="auto")
        assert job["device_type"] == "cpu"
        set_state(database, job["id"], JobState.CANCELLED)
        child = api.post(f"/v1/jobs/{job['id']}/retry").json()
        assert (child["device_type"], child["spec"]["device_type"]) == ("cpu", "auto")

    @pytest.mark.parametrize(
        "state", [JobState.QUEUED, JobState.STARTING, JobState.RUNNING, JobState.PAUSED, JobState.SUCCEEDED]
    )
    def test_only_what_failed_or_was_cancelled(self, api: Api, database: Database, state: JobState) -> None:
        job = api.submit()
        set_state(database, job["id"], state)
        shown = problem(api.post(f"/v1/jobs/{job['id']}/retry"), 409, "state_conflict")
        assert shown["state"] == state.value
        assert "clone" in shown["legal"]
        assert count(database) == 1

    @ONE_DATABASE
    @pytest.mark.parametrize(
        ("body", "pointer"), [({"from": "middle"}, "/from"), ({"start": "last"}, "/start"), ([1], ""), ({"x": 1}, "/x")]
    )
    def test_a_body_that_says_something_else_is_refused(
        self, api: Api, database: Database, body: object, pointer: str
    ) -> None:
        job = self.failed(api, database)
        shown = problem(api.post(f"/v1/jobs/{job['id']}/retry", json=body), 422, "invalid_request")
        assert shown["errors"][0]["pointer"] == pointer

    @ONE_DATABASE
    def test_one_that_is_no_json_is_400(self, api: Api, database: Database) -> None:
        job = self.failed(api, database)
        headers = {"Content-Type": "application/json"}
        problem(api.post(f"/v1/jobs/{job['id']}/retry", content=b"{", headers=headers), 400, "malformed_json")


class TestClone:
    @pytest.mark.parametrize("state", list(JobState))
    def test_any_job_can_be_cloned(self, api: Api, database: Database, state: JobState) -> None:
        job = api.submit(name="first")
        set_state(database, job["id"], state)
        answer = api.post(f"/v1/jobs/{job['id']}/clone")
        assert answer.status_code == 201
        assert answer.json()["parent"] == {"job": job["id"], "how": "clone", "checkpoint": None}
        assert answer.json()["effective_spec"] == job["effective_spec"]

    def test_a_patch_changes_what_it_names(self, api: Api) -> None:
        job = api.submit(name="first", hyperparameters={"epochs": 3, "learning_rate": 0.5})
        patch = {"name": "second", "framework": "tensorflow", "hyperparameters": {"learning_rate": 0.1}}
        child = api.post(f"/v1/jobs/{job['id']}/clone", json={"spec": patch}).json()
        assert (child["name"], child["framework"]) == ("second", "tensorflow")
        assert child["spec"] == job["spec"] | patch | {"hyperparameters": {"epochs": 3, "learning_rate": 0.1}}

    def test_null_takes_a_key_out_so_that_its_default_counts(self, api: Api) -> None:
        job = api.submit(name="first", priority=5)
        child = api.post(f"/v1/jobs/{job['id']}/clone", json={"spec": {"name": None, "priority": None}}).json()
        assert (child["name"], child["priority"]) == ("", 0)

    def test_a_part_of_what_was_written_as_a_name_can_be_patched(self, api: Api) -> None:
        job = api.submit(model="mlp")
        child = api.post(f"/v1/jobs/{job['id']}/clone", json={"spec": {"model": {"hidden": [5]}}}).json()
        assert child["spec"]["model"] == {"type": "mlp", "hidden": [5]}
        assert child["effective_spec"]["model"]["hidden"] == [5]

    def test_what_the_patch_breaks_is_refused_like_any_spec(self, api: Api, database: Database) -> None:
        job = api.submit()
        patch = {"hyperparameters": {"lerning_rate": 1}}
        shown = problem(api.post(f"/v1/jobs/{job['id']}/clone", json={"spec": patch}), 422, "invalid_spec")
        assert shown["errors"][0]["pointer"] == "/hyperparameters/lerning_rate"
        assert count(database) == 1

    @ONE_DATABASE
    @pytest.mark.parametrize("depth", [260, 900])
    def test_a_patch_nested_beyond_reason_is_refused(self, api: Api, depth: int) -> None:
        job = api.submit()
        deep = b'{"spec": ' + b'{"a": ' * depth + b"1" + b"}" * depth + b"}"
        headers = {"Content-Type": "application/json"}
        problem(api.post(f"/v1/jobs/{job['id']}/clone", content=deep, headers=headers), 400, "malformed_json")

    @ONE_DATABASE
    def test_a_full_queue_refuses_it_too(self, api: Api) -> None:
        job = api.submit()
        object.__setattr__(api.services.limits, "max_queued_jobs", 1)
        problem(api.post(f"/v1/jobs/{job['id']}/clone"), 429, "queue_full")

    @ONE_DATABASE
    def test_a_clone_of_a_clone_names_the_nearest(self, api: Api) -> None:
        first = api.submit()
        second = api.post(f"/v1/jobs/{first['id']}/clone").json()
        third = api.post(f"/v1/jobs/{second['id']}/clone").json()
        assert third["parent"]["job"] == second["id"]


class TestMergePatch:
    """RFC 7396, appendix A."""

    @pytest.mark.parametrize(
        ("target", "patch", "result"),
        [
            ('{"a":"b"}', '{"a":"c"}', '{"a":"c"}'),
            ('{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'),
            ('{"a":"b"}', '{"a":null}', "{}"),
            ('{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'),
            ('{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'),
            ('{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'),
            ('{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'),
            ('{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'),
            ('["a","b"]', '["c","d"]', '["c","d"]'),
            ('{"a":"b"}', '["c"]', '["c"]'),
            ('{"a":"foo"}', "null", "null"),
            ('{"a":"foo"}', '"bar"', '"bar"'),
            ('{"e":null}', '{"a":1}', '{"e":null,"a":1}'),
            ("[1,2]", '{"a":"b","c":null}', '{"a":"b"}'),
            ("{}", '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'),
        ],
    )
    def test_the_examples_of_the_rfc(self, target: str, patch: str, result: str) -> None:
        assert merge_patch(json.loads(target), json.loads(patch)) == json.loads(result)


class TestIdempotency:
    def make(self, api: Api, job_id: str, how: str, body: object = None, **headers: str) -> httpx.Response:
        content = b"" if body is None else json.dumps(body).encode()
        sent = KEY | {"Content-Type": "application/json"} | headers
        return api.post(f"/v1/jobs/{job_id}/{how}", content=content, headers=sent)

    @pytest.mark.parametrize("how", ["retry", "clone"])
    def test_a_repeat_gets_the_first_answer(self, api: Api, database: Database, how: str) -> None:
        job = api.submit()
        set_state(database, job["id"], JobState.FAILED)
        first = self.make(api, job["id"], how)
        set_state(database, first.json()["id"], JobState.RUNNING, attempt=1)
        second = self.make(api, job["id"], how)
        assert second.headers["idempotency-replayed"] == "true"
        assert (second.status_code, second.content) == (201, first.content)
        assert count(database) == 2

    @pytest.mark.parametrize("how", ["retry", "clone"])
    def test_at_the_same_time_it_is_one_job(self, api: Api, database: Database, how: str) -> None:
        job = api.submit()
        set_state(database, job["id"], JobState.CANCELLED)
        answers = api.together([("POST", f"/v1/jobs/{job['id']}/{how}", {"headers": KEY})] * 6)
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert count(database) == 2

    def test_the_same_key_for_another_job_body_or_route_is_refused(self, api: Api, database: Database) -> None:
        job, another = api.submit(), api.submit()
        for each in (job, another):
            set_state(database, each["id"], JobState.FAILED)
        self.make(api, job["id"], "clone")
        problem(self.make(api, another["id"], "clone"), 422, "idempotency_mismatch")
        problem(self.make(api, job["id"], "clone", {"spec": {"name": "x"}}), 422, "idempotency_mismatch")
        problem(self.make(api, job["id"], "retry"), 422, "idempotency_mismatch")
        problem(api.post("/v1/jobs", json=SPEC, headers=KEY), 422, "idempotency_mismatch")
        assert count(database) == 3
