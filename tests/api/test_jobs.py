"""Submitting, listing and reading jobs."""

from typing import Any

import pytest
from sqlalchemy import func, select

from app.api.views import JobDetailView, JobView, ListView, ValidationView
from app.db import Database
from app.fleet.models import Lease
from app.ids import is_id
from app.jobs.models import Job
from app.jobs.states import JobState
from app.scheduling.run import schedule
from tests.api.client import ONE_DATABASE, SPEC, Api, Tenant, problem
from tests.fakes import START, FakeClock
from tests.jobs.placing import TIMES
from tests.rows import add_attempt, add_worker


def set_state(database: Database, job_id: str, state: JobState, **values: Any) -> None:
    with database.write() as session:
        job = session.get_one(Job, job_id)
        job.state = state.value
        for name, value in values.items():
            setattr(job, name, value)


class TestSubmit:
    def test_the_answer_is_the_job_as_it_is_stored(self, api: Api) -> None:
        answer = api.post("/v1/jobs", json=SPEC | {"name": "first", "tags": {"team": "birds"}})
        assert answer.status_code == 201
        job = answer.json()
        JobView.model_validate(job)
        assert is_id("job", job["id"])
        assert answer.headers["location"] == f"/v1/jobs/{job['id']}"
        read = api.get(answer.headers["location"]).json()
        assert {name: read[name] for name in job} == job

    def test_the_spec_is_kept_as_it_was_sent(self, api: Api) -> None:
        raw = b'{ "device_count": 1,\n  "data":"iris", "model": "linear", "framework":"torch"}'
        job = api.post("/v1/jobs", content=raw, headers={"Content-Type": "application/json"}).json()
        with api.services.database.read() as session:
            assert session.get_one(Job, job["id"]).spec == raw.decode()
        assert list(job["spec"]) == ["device_count", "data", "model", "framework"]

    def test_the_effective_spec_has_nothing_left_open(self, api: Api) -> None:
        spec = api.submit()["effective_spec"]
        assert "auto" not in str(spec)
        assert (spec["task"], spec["loss"], spec["metrics"]) == ("classification", "cross_entropy", ["accuracy"])
        assert spec["hyperparameters"]["learning_rate"] == 0.001

    def test_the_effective_spec_can_be_posted_again_and_stays_itself(self, api: Api) -> None:
        first = api.submit()["effective_spec"]
        again = api.post("/v1/jobs", json=first)
        assert again.json()["effective_spec"] == first

    def test_it_begins_its_journal(self, api: Api) -> None:
        job = api.submit()
        (event,) = api.get(f"/v1/jobs/{job['id']}/events").json()["data"]
        assert (event["seq"], event["kind"], event["state"]) == (1, "state", "queued")

    def test_what_auto_became_is_said(self, api: Api) -> None:
        job = api.submit(device_type="auto")
        assert job["device_type"] == "cpu"
        assert "became 'cpu'" in job["warnings"][0]

    def test_auto_means_cuda_where_a_card_ever_was(self, api: Api, database: Database) -> None:
        with database.write() as session:
            add_worker(session, devices=1)
        job = api.submit(device_type="auto")
        assert (job["device_type"], job["warnings"]) == ("cuda", [])

    @ONE_DATABASE
    def test_an_unknown_data_set_is_refused_with_the_nearest(self, api: Api) -> None:
        (shown,) = problem(api.post("/v1/jobs", json=SPEC | {"data": "irsi"}), 422, "invalid_spec")["errors"]
        assert shown["pointer"] == "/data"
        assert "iris" in f"{shown['suggestion']} {shown['message']}"

    @ONE_DATABASE
    def test_a_full_queue_is_429_with_the_time_to_wait(self, api: Api, database: Database) -> None:
        object.__setattr__(api.services.limits, "max_queued_jobs", 1)
        api.submit()
        answer = api.post("/v1/jobs", json=SPEC)
        problem(answer, 429, "queue_full")
        assert answer.headers["retry-after"]
        with database.read() as session:
            assert session.scalar(select(func.count()).select_from(Job)) == 1

    # The list is the shared one of hostile model names: a spec selects from known models, never code or paths.
    @ONE_DATABASE
    @pytest.mark.parametrize("kind", ["os.system", "a;id", "../../x", "__import__('os')", "python", ""])
    def test_a_model_that_is_none_of_ours_is_refused(self, api: Api, kind: str) -> None:
        answer = api.post("/v1/jobs", json=SPEC | {"model": {"type": kind}})
        assert answer.status_code == 422
        assert answer.json()["errors"][0]["pointer"].startswith("/model")

    @ONE_DATABASE
    @pytest.mark.parametrize(
        "member", ["id", "state", "attempt", "owner", "project_id", "effective_spec", "created_at"]
    )
    def test_what_only_answers_have_cannot_be_sent(self, api: Api, member: str) -> None:
        (shown,) = problem(api.post("/v1/jobs", json=SPEC | {member: "x"}), 422, "invalid_spec")["errors"]
        assert shown["pointer"] == f"/{member}"

    @ONE_DATABASE
    @pytest.mark.parametrize(
        "name",
        ["<script>alert(1)</script>", '"><svg/onload=alert(1)>', "{{7*7}}", "javascript:alert(1)", "CON", "名前"],
    )
    def test_a_name_comes_back_literally(self, api: Api, name: str) -> None:
        answer = api.post("/v1/jobs", json=SPEC | {"name": name})
        assert answer.json()["name"] == name
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["x-content-type-options"] == "nosniff"

    @ONE_DATABASE
    @pytest.mark.parametrize("name", ["a\u202eb", "a\x00b", "x" * 300, ".."])
    def test_a_name_that_cannot_be_shown_is_refused(self, api: Api, name: str) -> None:
        (shown,) = problem(api.post("/v1/jobs", json=SPEC | {"name": name}), 422, "invalid_spec")["errors"]
        assert shown["pointer"] == "/name"


class TestImpossibleRequest:
    """A job that no host could ever run is refused; one that only has to wait says for what."""

    def test_more_devices_than_any_host_has_is_refused_with_the_most(self, api: Api, database: Database) -> None:
        with database.write() as session:
            add_worker(session, devices=2)
        answer = api.post("/v1/jobs", json=SPEC | {"device_count": 3, "device_type": "cuda"})
        shown = problem(answer, 422, "insufficient_devices")
        assert shown["maximum"] == 2
        assert shown["errors"][0]["pointer"] == "/device_count"

    def test_devices_that_are_held_are_waited_for(self, api: Api, database: Database, clock: FakeClock) -> None:
        with database.write() as session:
            worker = add_worker(session, devices=2)
            session.add(
                Lease(device_id="host-a-0", worker_id=worker.id, job_id="job_x", attempt=1, epoch=1, expires_at=START)
            )
        clock.advance(1)
        job = api.submit(device_count=2, device_type="cuda")
        waiting = api.get(f"/v1/jobs/{job['id']}").json()["waiting"]
        assert waiting["code"] == "waiting_for_devices"
        assert "waiting for 2 devices, 1 free" in waiting["message"]

    def test_who_holds_them_is_named_only_inside_the_project(
        self, api: Api, other: Tenant, database: Database, clock: FakeClock
    ) -> None:
        with database.write() as session:
            add_worker(session, devices=1)
        holder = api.submit(device_type="cuda")
        assert [placed.job_id for placed in schedule(database, TIMES)] == [holder["id"]]
        clock.advance(1)
        mine = api.submit(device_type="cuda")
        theirs = api.with_key(other.user).submit(device_type="cuda")
        seen = [
            client.get(f"/v1/jobs/{job['id']}").json()["waiting"]["message"]
            for client, job in ((api, mine), (api.with_key(other.user), theirs))
        ]
        assert holder["id"] in seen[0]
        assert holder["id"] not in seen[1]
        assert seen[1].startswith("waiting for 1 device, 0 free")

    def test_a_host_that_has_just_come_costs_no_refusal(self, api: Api, database: Database) -> None:
        with database.write() as session:
            add_worker(session, devices=1)
        api.submit(device_type="cuda")  # from here on the fleet is remembered, and the clock stands still
        with database.write() as session:
            add_worker(session, "host-b", devices=2)
        assert api.submit(device_count=2, device_type="cuda")["state"] == "queued"

    def test_without_a_worker_it_is_accepted_and_says_so(self, api: Api) -> None:
        job = api.submit(device_count=4, device_type="cuda")
        waiting = api.get(f"/v1/jobs/{job['id']}").json()["waiting"]
        assert waiting == {"code": "no_worker_online", "message": "no worker online", "position": 1}

    @ONE_DATABASE
    def test_no_device_at_all_is_refused_with_what_was_meant(self, api: Api) -> None:
        (shown,) = problem(api.post("/v1/jobs", json=SPEC | {"device_count": 0}), 422, "invalid_spec")["errors"]
        assert "cpu" in f"{shown['message']} {shown['suggestion']}"


class TestValidate:
    def test_answers_what_the_job_would_be_and_creates_nothing(self, api: Api, database: Database) -> None:
        answer = api.post("/v1/jobs/validate", json=SPEC)
        assert answer.status_code == 200
        shown = answer.json()
        ValidationView.model_validate(shown)
        # 4 features into 8 units, 8 into 3 classes, each with a bias: (4+1)*8 + (8+1)*3.
        assert shown["parameter_count"] == 67
        assert (shown["train_rows"], shown["validation_rows"], shown["test_rows"]) == (120, 30, 0)
        assert shown["steps_per_epoch"] == 2  # 120 rows in batches of 64
        assert shown["now"]["code"] == "no_worker_online"
        with database.read() as session:
            assert session.scalar(select(func.count()).select_from(Job)) == 0

    @ONE_DATABASE
    def test_names_every_problem_at_once(self, api: Api) -> None:
        spec = SPEC | {"lerning_rate": 1, "device_count": "two"}
        shown = problem(api.post("/v1/jobs/validate", json=spec), 422, "invalid_spec")
        assert {item["pointer"] for item in shown["errors"]} == {"/lerning_rate", "/device_count"}


class TestRead:
    def test_a_job_has_its_attempts(self, api: Api, database: Database) -> None:
        job = api.submit()
        with database.write() as session:
            row = session.get_one(Job, job["id"])
            add_attempt(session, row, 1, ended_at=START, cause="worker_lost", exit_code=-9, signal=9)
            add_attempt(session, row, 2)
        set_state(database, job["id"], JobState.RUNNING, attempt=2)
        shown = api.get(f"/v1/jobs/{job['id']}").json()
        JobDetailView.model_validate(shown)
        assert [attempt["number"] for attempt in shown["attempts"]] == [1, 2]
        assert shown["attempts"][0]["signal"] == 9
        assert "waiting" not in shown
        assert api.get(f"/v1/jobs/{job['id']}/attempts").json()["data"] == shown["attempts"]

    def test_a_job_that_is_not_there_is_404(self, api: Api) -> None:
        problem(api.get("/v1/jobs/job_01k0000000000000000000000a"), 404, "not_found")


class TestList:
    def test_pages_hold_every_job_once_though_all_were_made_in_one_moment(self, api: Api) -> None:
        made = [api.submit()["id"] for _ in range(13)]
        for order in ("desc", "asc"):
            walked: list[str] = []
            path: str | None = f"/v1/jobs?limit=5&order={order}&state=queued"
            while path is not None:
                answer = api.get(path)
                page = answer.json()
                ListView[JobView].model_validate(page)
                walked += [job["id"] for job in page["data"]]
                link = answer.headers.get("link")
                assert (link is not None) == page["has_more"] == (page["next_after"] is not None)
                path = link.removesuffix('>; rel="next"').removeprefix("<") if link else None
            assert walked == sorted(made, reverse=order == "desc")

    def test_a_page_stands_still_while_jobs_are_added(self, api: Api) -> None:
        for _ in range(4):
            api.submit()
        first = api.get("/v1/jobs?limit=2").json()
        api.submit()
        second = api.get(f"/v1/jobs?limit=2&after={first['next_after']}").json()
        ids = [job["id"] for page in (first, second) for job in page["data"]]
        assert len(set(ids)) == 4
        assert second["has_more"] is False

    def test_filters_narrow_it(self, api: Api, database: Database, clock: FakeClock) -> None:
        old = api.submit(name="Penguins one", tags={"team": "birds"})["id"]
        clock.advance(60)
        new = api.submit(name="whales", framework="tensorflow", tags={"team": "sea", "kind": "a:b"})["id"]
        set_state(database, new, JobState.RUNNING, attempt=1)
        middle = "2026-01-31T12:00:30Z"
        for query, wanted in {
            "": [new, old],
            "state=queued": [old],
            "state=queued&state=running": [new, old],
            "state=failed": [],
            "framework=tensorflow": [new],
            "tag=team:birds": [old],
            "tag=kind:a:b": [new],
            f"created_after={middle}": [new],
            f"created_before={middle}": [old],
            "q=PENGUIN": [old],
            "q=%25": [],
        }.items():
            found = [job["id"] for job in api.get(f"/v1/jobs?{query}").json()["data"]]
            assert found == wanted, query


class TestTogether:
    def test_many_requests_at_once_disturb_nobody_and_leave_no_connection_behind(
        self, api: Api, database: Database
    ) -> None:
        jobs = [api.submit()["id"] for _ in range(6)]
        requests: list[tuple[str, str, dict[str, Any]]] = []
        for number in range(10):
            job = jobs[number % len(jobs)]
            requests += [
                ("GET", f"/v1/jobs/{job}", {}),
                ("POST", f"/v1/jobs/{job}/cancel", {}),
                ("POST", "/v1/jobs", {"json": SPEC}),
                ("GET", "/v1/jobs?state=queued&state=cancelled", {}),
            ]
        statuses = {answer.status_code for answer in api.together(requests)}
        assert statuses == {200, 201}
        for engine in (database.reader, database.writer):
            assert engine.pool.checkedout() == 0  # type: ignore[attr-defined] # of QueuePool
        assert {api.get(f"/v1/jobs/{job}").json()["state"] for job in jobs} == {"cancelled"}
