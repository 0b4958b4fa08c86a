"""Deleting jobs over HTTP."""

from pathlib import Path

from app.db import Database
from app.jobs.states import JobState
from app.storage import Storage
from tests.api.client import SPEC, Api, Tenant, problem
from tests.api.stored import leave_checkpoint, set_state


def over(api: Api, database: Database, state: JobState = JobState.SUCCEEDED) -> str:
    job = str(api.submit()["id"])
    set_state(database, job, state)
    return job


class TestDelete:
    def test_it_is_gone_with_all_that_it_had(
        self, api: Api, database: Database, storage: Storage, tmp_path: Path
    ) -> None:
        job = over(api, database)
        leave_checkpoint(database, storage, tmp_path, job, 10)
        answer = api.delete(f"/v1/jobs/{job}")
        assert (answer.status_code, answer.content) == (204, b"")
        assert storage.list() == []
        for path in ("", "/events", "/metrics", "/logs", "/artifacts", "/checkpoints"):
            problem(api.get(f"/v1/jobs/{job}{path}"), 404, "not_found")
        assert api.get("/v1/jobs").json()["data"] == []
        problem(api.delete(f"/v1/jobs/{job}"), 404, "not_found")

    def test_one_that_waits_is_refused_with_what_is_legal(self, api: Api) -> None:
        job = api.submit()["id"]
        refused = problem(api.delete(f"/v1/jobs/{job}"), 409, "state_conflict")
        assert (refused["state"], refused["legal"]) == ("queued", ["pause", "cancel", "clone"])
        assert api.get(f"/v1/jobs/{job}").status_code == 200

    def test_one_that_a_retry_goes_on_from_is_refused_by_its_name(
        self, api: Api, database: Database, storage: Storage, tmp_path: Path
    ) -> None:
        job = over(api, database, JobState.FAILED)
        leave_checkpoint(database, storage, tmp_path, job, 10)
        retry = api.post(f"/v1/jobs/{job}/retry").json()["id"]
        assert problem(api.delete(f"/v1/jobs/{job}"), 409, "job_needed")["jobs"] == [retry]
        api.post(f"/v1/jobs/{retry}/cancel")
        assert api.delete(f"/v1/jobs/{job}").status_code == 204
        assert api.get(f"/v1/jobs/{retry}").json()["parent"]["job"] == job

    def test_a_viewer_may_not(self, api: Api, database: Database, tenant: Tenant) -> None:
        job = over(api, database)
        problem(api.with_key(tenant.viewer).delete(f"/v1/jobs/{job}"), 403, "forbidden")

    def test_its_idempotency_key_makes_no_second_job(self, api: Api, database: Database) -> None:
        key = {"Idempotency-Key": "once"}
        job = api.post("/v1/jobs", json=SPEC, headers=key).json()["id"]
        set_state(database, job, JobState.SUCCEEDED)
        api.delete(f"/v1/jobs/{job}")
        again = api.post("/v1/jobs", json=SPEC, headers=key)
        assert job in problem(again, 409, "conflict")["detail"]
        assert api.get("/v1/jobs").json()["data"] == []
