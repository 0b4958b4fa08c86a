"""Device-hours and energy over HTTP: of one job, and of a project."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from app.api.hold_views import UsageReport
from app.api.views import JobDetailView
from app.clock import to_rfc3339
from app.db import Database
from app.jobs.models import Attempt
from tests.api.client import ONE_DATABASE, Api, Tenant, problem
from tests.fakes import START, FakeClock
from tests.rows import add_worker

HOUR = timedelta(hours=1)
RanJob = Callable[..., str]


@pytest.fixture
def ran(api: Api, database: Database) -> RanJob:
    """Makes a job of an hour on one card, at the time that stands still."""
    with database.write() as session:
        add_worker(session)

    def make(client: Api = api, **changes: Any) -> str:
        job_id = str(client.submit(device_type="cuda")["id"])
        values = {
            "job_id": job_id,
            "number": 1,
            "claimed_at": START,
            "ended_at": START + HOUR,
            "device_s": 3600.0,
            "energy_j": 7200.0,
            "utilization": 0.5,
            "verdict": "input_bound",
        }
        with database.write() as session:
            session.add(Attempt(placed_at=START, claim_by=START, **(values | changes)))
        return job_id

    return make


def report(api: Api, query: str = "") -> dict[str, Any]:
    answer = api.get(f"/v1/usage{query}")
    assert answer.status_code == 200, answer.text
    UsageReport.model_validate(answer.json())
    return dict(answer.json())


class TestOfAJob:
    def test_stands_with_the_job_and_with_each_attempt(self, api: Api, ran: RanJob) -> None:
        shown = JobDetailView.model_validate(api.get(f"/v1/jobs/{ran()}").json())
        assert shown.usage is not None
        assert (shown.usage.device_s, shown.usage.energy_j, shown.usage.utilization) == (3600.0, 7200.0, 0.5)
        assert shown.usage.verdict == "input_bound"
        assert "busy 50 % of the time" in (shown.usage.message or "")
        (attempt,) = shown.attempts
        assert (attempt.device_s, attempt.energy_j, attempt.verdict) == (3600.0, 7200.0, "input_bound")

    @ONE_DATABASE
    def test_is_nothing_before_it_runs(self, api: Api) -> None:
        usage = api.get(f"/v1/jobs/{api.submit()['id']}").json()["usage"]
        assert usage == {"device_s": 0.0, "energy_j": None, "utilization": None, "verdict": None, "message": None}


class TestReport:
    def test_sums_the_last_thirty_days_by_owner(self, api: Api, ran: RanJob, clock: FakeClock) -> None:
        ran()
        ran()
        clock.advance(86_400)
        found = report(api)
        assert (found["by"], found["until"]) == ("owner", to_rfc3339(START + timedelta(days=1)))
        assert found["since"] == to_rfc3339(START - timedelta(days=29))
        expected = {"jobs": 2, "holds": 0, "cuda_device_s": 7200.0, "cpu_device_s": 0.0, "energy_j": 14_400.0}
        assert found["data"] == [{"key": "user-of-birds", **expected}]
        assert found["total"] == {"key": "total", **expected}

    def test_a_span_cuts_what_lies_across_its_ends(self, api: Api, ran: RanJob, clock: FakeClock) -> None:
        job_id = ran()
        clock.advance(7200)
        since, until = to_rfc3339(START + HOUR / 2), to_rfc3339(START + 9 * HOUR)
        (line,) = report(api, f"?by=job&since={since}&until={until}")["data"]
        assert (line["key"], line["cuda_device_s"], line["energy_j"]) == (job_id, 1800.0, 3600.0)

    @ONE_DATABASE
    def test_a_job_that_runs_counts_until_now(self, api: Api, ran: RanJob, clock: FakeClock) -> None:
        ran(ended_at=None, device_s=None, energy_j=None)
        clock.advance(60)
        assert report(api)["total"]["cuda_device_s"] == 60.0
        assert report(api, "?by=day")["data"][0]["key"] == "2026-01-31"

    def test_projects_stay_apart_except_for_an_admin(
        self, api: Api, ran: RanJob, tenant: Tenant, other: Tenant, clock: FakeClock
    ) -> None:
        ran()
        ran(api.with_key(other.user), device_s=1800.0)
        clock.advance(7200)
        assert [line["key"] for line in report(api, "?by=project")["data"]] == ["birds"]
        everything = report(api.with_key(tenant.admin), "?by=project")
        assert {line["key"]: line["cuda_device_s"] for line in everything["data"]} == {
            "birds": 3600.0,
            "whales": 1800.0,
        }
        assert [line["key"] for line in report(api.with_key(tenant.admin), "?by=owner")["data"]] == ["user-of-birds"]

    @ONE_DATABASE
    @pytest.mark.parametrize(
        ("query", "pointer"),
        [
            ("?until=0001-01-01T00:00:00Z", "/since"),
            ("?by=colour", "/by"),
            ("?since=yesterday", "/since"),
            (f"?since={to_rfc3339(START)}&until={to_rfc3339(START)}", "/since"),
        ],
    )
    def test_what_cannot_be_is_422(self, api: Api, query: str, pointer: str) -> None:
        found = problem(api.get(f"/v1/usage{query}"), 422, "invalid_request")
        assert [(error["pointer"], error["place"]) for error in found["errors"]] == [(pointer, "query")]
