"""Holding devices over HTTP."""

from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from app.api.hold_views import HoldView
from app.api.views import JobDetailView, ListView
from app.clock import to_rfc3339
from app.db import Database
from app.fleet.models import Device, Lease
from app.holds.models import Hold
from app.holds.upkeep import expire
from tests.api.client import ONE_DATABASE, Api, Tenant, problem
from tests.fakes import START, FakeClock
from tests.rows import add_worker

TWO = {"device_count": 2, "for_s": 3600}
KEY = {"Idempotency-Key": "8e03978e-40d5-43dd-bc93-6894a57f9324"}


@pytest.fixture
def worker_id(database: Database) -> str:
    """One worker online with two cards."""
    with database.write() as session:
        return add_worker(session, devices=2).id


def hold(api: Api, **body: Any) -> dict[str, Any]:
    answer = api.post("/v1/holds", json=TWO | body)
    assert answer.status_code == 201, answer.text
    HoldView.model_validate(answer.json())
    return dict(answer.json())


def change(api: Api, hold_id: str, **body: Any) -> httpx.Response:
    return api.request("PATCH", f"/v1/holds/{hold_id}", json=body)


def count_holds(database: Database) -> int:
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(Hold)) or 0


class TestCreate:
    def test_answers_the_devices_and_the_environment_to_use_them(
        self, api: Api, worker_id: str, database: Database
    ) -> None:
        answer = api.post("/v1/holds", json=TWO | {"note": "notebook", "stop_when_idle_s": 1800})
        shown = answer.json()
        assert (answer.status_code, answer.headers["location"]) == (201, f"/v1/holds/{shown['id']}")
        assert (shown["owner"], shown["note"], shown["host_name"]) == ("user-of-birds", "notebook", "host-a")
        assert shown["worker_id"] == worker_id
        assert shown["environment"] == {
            "CUDA_VISIBLE_DEVICES": "host-a-0,host-a-1",
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "OMP_NUM_THREADS": "2",
        }
        assert shown["until"] == to_rfc3339(START + timedelta(hours=1))
        with database.read() as session:
            held = {lease.device_id: lease.job_id for lease in session.execute(select(Lease)).scalars()}
        assert held == {"host-a-0": shown["id"], "host-a-1": shown["id"]}

    @pytest.mark.usefixtures("worker_id")
    def test_busy_devices_are_409_with_who_has_them(self, api: Api) -> None:
        hold(api)
        answer = api.post("/v1/holds", json=TWO)
        found = problem(answer, 409, "devices_busy")
        assert "held by user-of-birds until 2026-01-31 13:00 UTC" in found["detail"]
        assert int(answer.headers["retry-after"]) > 0

    @ONE_DATABASE
    @pytest.mark.usefixtures("worker_id")
    def test_more_than_a_host_has_is_422_with_the_field(self, api: Api) -> None:
        found = problem(api.post("/v1/holds", json=TWO | {"device_count": 3}), 422, "insufficient_devices")
        assert (found["maximum"], found["errors"][0]["pointer"]) == (2, "/device_count")

    @ONE_DATABASE
    @pytest.mark.usefixtures("worker_id")
    @pytest.mark.parametrize(
        ("changes", "pointer"),
        [
            ({"for_s": 8 * 86_400}, "/for_s"),
            ({"for_s": 0}, "/for_s"),
            ({"for_s": None}, "/for_s"),
            ({"host": "elsewhere"}, "/host"),
            ({"stop_when_idle_s": 59}, "/stop_when_idle_s"),
            ({"note": "a\x00b"}, "/note"),
            ({"device_cuont": 1}, "/device_cuont"),
            ({"device_count": 0}, "/device_count"),
        ],
    )
    def test_what_cannot_be_is_422_with_the_field(self, api: Api, changes: dict[str, Any], pointer: str) -> None:
        found = problem(api.post("/v1/holds", json=TWO | changes), 422, "invalid_request")
        assert [error["pointer"] for error in found["errors"]] == [pointer]

    @ONE_DATABASE
    @pytest.mark.usefixtures("worker_id")
    def test_a_viewer_may_look_and_no_more(self, api: Api, tenant: Tenant) -> None:
        made = hold(api, device_count=1)
        viewer = api.with_key(tenant.viewer)
        assert viewer.get(f"/v1/holds/{made['id']}").json() == made
        problem(viewer.post("/v1/holds", json=TWO), 403, "forbidden")
        problem(viewer.delete(f"/v1/holds/{made['id']}"), 403, "forbidden")


@pytest.mark.usefixtures("worker_id")
class TestIdempotency:
    def test_a_repeat_holds_nothing_more(self, api: Api, database: Database) -> None:
        first = api.post("/v1/holds", json=TWO, headers=KEY)
        second = api.post("/v1/holds", json=TWO, headers=KEY)
        assert (second.status_code, second.json()) == (201, first.json())
        assert (first.headers.get("idempotency-replayed"), second.headers["idempotency-replayed"]) == (None, "true")
        assert count_holds(database) == 1

    def test_the_same_at_the_same_time_is_one_hold(self, api: Api, database: Database) -> None:
        one = TWO | {"device_count": 1}
        answers = api.together([("POST", "/v1/holds", {"json": one, "headers": KEY})] * 6)
        assert {answer.status_code for answer in answers} == {201}
        assert len({answer.json()["id"] for answer in answers}) == 1
        assert count_holds(database) == 1

    @ONE_DATABASE
    def test_another_body_is_refused_and_a_refusal_is_not_kept(self, api: Api) -> None:
        hold(api)
        problem(api.post("/v1/holds", json=TWO, headers=KEY), 409, "devices_busy")
        (open_one,) = api.get("/v1/holds").json()["data"]
        api.delete(f"/v1/holds/{open_one['id']}")
        assert api.post("/v1/holds", json=TWO, headers=KEY).status_code == 201
        problem(api.post("/v1/holds", json=TWO | {"for_s": 60}, headers=KEY), 422, "idempotency_mismatch")


@pytest.mark.usefixtures("worker_id")
class TestContention:
    def test_of_many_at_once_as_many_get_a_device_as_there_are(self, api: Api, database: Database) -> None:
        one = TWO | {"device_count": 1}
        answers = api.together([("POST", "/v1/holds", {"json": one})] * 6)
        assert sorted(answer.status_code for answer in answers) == [201, 201, 409, 409, 409, 409]
        with database.read() as session:
            assert session.scalar(select(func.count()).select_from(Lease)) == 2


@pytest.mark.usefixtures("worker_id")
class TestChange:
    def test_later_from_now_or_until_a_time(self, api: Api, clock: FakeClock) -> None:
        made = hold(api)
        clock.advance(600)
        answer = change(api, made["id"], for_s=7200)
        assert (answer.status_code, answer.json()["until"]) == (200, to_rfc3339(START + timedelta(seconds=7800)))
        when = to_rfc3339(START + timedelta(hours=5))
        assert change(api, made["id"], until=when).json()["until"] == when

    @ONE_DATABASE
    @pytest.mark.parametrize(
        ("body", "pointer"),
        [
            ({}, "/until"),
            ({"until": "2030-01-31T18:00:00Z", "for_s": 60}, "/until"),
            ({"until": to_rfc3339(START)}, "/until"),
            ({"until": to_rfc3339(START + timedelta(days=8))}, "/until"),
            ({"for_s": 8 * 86_400}, "/for_s"),
        ],
    )
    def test_what_cannot_be_is_422(self, api: Api, body: dict[str, Any], pointer: str) -> None:
        found = problem(change(api, hold(api)["id"], **body), 422, "invalid_request")
        assert [error["pointer"] for error in found["errors"]] == [pointer]

    @ONE_DATABASE
    def test_one_that_is_over_is_409(self, api: Api) -> None:
        made = hold(api)
        api.delete(f"/v1/holds/{made['id']}")
        problem(change(api, made["id"], for_s=60), 409, "conflict")


@pytest.mark.usefixtures("worker_id")
class TestEnd:
    def test_given_back_the_devices_are_free_at_once_and_again_is_harmless(self, api: Api, clock: FakeClock) -> None:
        made = hold(api)
        clock.advance(5)
        for _ in range(2):
            answer = api.delete(f"/v1/holds/{made['id']}")
            assert (answer.status_code, answer.content) == (204, b"")
        ended = api.get(f"/v1/holds/{made['id']}").json()
        assert (ended["ended_why"], ended["device_s"]) == ("released", 10.0)
        hold(api)

    @ONE_DATABASE
    def test_one_that_ran_out_shows_it(self, api: Api, database: Database, clock: FakeClock) -> None:
        made = hold(api)
        clock.advance(3600)
        expire(database)
        assert api.get(f"/v1/holds/{made['id']}").json()["ended_why"] == "expired"


@pytest.mark.usefixtures("worker_id")
class TestList:
    def test_open_and_ended_ones_in_pages(self, api: Api) -> None:
        first = hold(api, device_count=1)["id"]
        second = hold(api, device_count=1)["id"]
        api.delete(f"/v1/holds/{first}")

        def ids(query: str) -> list[str]:
            page = ListView[HoldView].model_validate(api.get(f"/v1/holds{query}").json())
            return [item.id for item in page.data]

        assert (ids(""), ids("?state=open"), ids("?state=ended")) == ([second, first], [second], [first])
        assert (ids("?limit=1"), ids(f"?after={second}"), ids("?order=asc")) == ([second], [first], [first, second])
        problem(api.get("/v1/holds?state=closed"), 422, "invalid_request")

    @ONE_DATABASE
    def test_other_projects_see_nothing_and_an_admin_everything(self, api: Api, other: Tenant) -> None:
        made = hold(api)["id"]
        stranger, admin = api.with_key(other.user), api.with_key(other.admin)
        assert stranger.get("/v1/holds").json()["data"] == []
        problem(stranger.get(f"/v1/holds/{made}"), 404, "not_found")
        problem(stranger.delete(f"/v1/holds/{made}"), 404, "not_found")
        problem(change(stranger, made, for_s=60), 404, "not_found")
        assert [item["id"] for item in admin.get("/v1/holds").json()["data"]] == [made]
        assert admin.delete(f"/v1/holds/{made}").status_code == 204


@pytest.mark.usefixtures("worker_id")
class TestSeenByJobs:
    def test_a_waiting_job_says_who_holds_its_devices(self, api: Api, other: Tenant) -> None:
        hold(api)
        mine = api.submit(device_type="cuda")
        waiting = JobDetailView.model_validate(api.get(f"/v1/jobs/{mine['id']}").json()).waiting
        assert waiting is not None
        assert waiting.message.endswith("held by user-of-birds until 2026-01-31 13:00 UTC")
        stranger = api.with_key(other.user)
        theirs = stranger.submit(device_type="cuda")
        message = stranger.get(f"/v1/jobs/{theirs['id']}").json()["waiting"]["message"]
        assert message.endswith("held by 1 hold of other projects")

    @ONE_DATABASE
    def test_cpu_slots_can_be_held_too(self, api: Api, database: Database) -> None:
        with database.write() as session:
            add_worker(session, "host-b", devices=1, kind="cpu")
            session.get_one(Device, "host-b-0").threads = 3
        made = hold(api, device_count=1, device_type="cpu")
        assert (made["environment"]["CUDA_VISIBLE_DEVICES"], made["environment"]["OMP_NUM_THREADS"]) == ("", "3")
