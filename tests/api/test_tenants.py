"""Two projects on one service: what the other has does not exist, in every route and with every verb."""

from typing import Any

import pytest
from starlette.routing import Route

from app.artifacts.models import Artifact
from app.db import Database
from app.fleet.models import Lease
from app.ids import new_id
from app.jobs.models import Job
from app.storage import Storage
from tests.api.client import SPEC, Api, Tenant, problem
from tests.api.stored import leave_checkpoint
from tests.fakes import START, FakeClock
from tests.rows import add_attempt, add_worker

CSV = b"a,b,label\n1,2,x\n2,1,y\n3,5,x\n4,0,y\n"


@pytest.fixture
def theirs(api: Api, other: Tenant, database: Database, storage: Storage, tmp_path: Any) -> dict[str, str]:
    """One of everything that belongs to the other project, by the name of its path parameter."""
    they = api.with_key(other.user)
    dataset = they.post("/v1/datasets", files={"file": ("theirs.csv", CSV, "text/csv")}).json()["id"]
    job = they.submit(data={"source": dataset, "target": "label"}, tags={"team": "whales"})["id"]
    source = tmp_path / "model.bin"
    source.write_bytes(b"weights")
    storage.put("artifacts/theirs", source)
    with database.write() as session:
        add_attempt(session, session.get_one(Job, job))
        artifact = {"attempt": 1, "kind": "model", "media_type": "application/octet-stream", "size_bytes": 7}
        session.add(
            Artifact(
                job_id=job,
                name="model.bin",
                digest="0" * 64,
                storage_key="artifacts/theirs",
                created_at=START,
                **artifact,
            )
        )
    leave_checkpoint(database, storage, tmp_path, job, 7)
    return {"job_id": job, "dataset_id": dataset, "step": "7", "name": "model.bin", "name:path": "model.bin"}


def scoped_routes(api: Api) -> list[tuple[str, str]]:
    """Every method and path that names something of a project."""
    return [
        (method, route.path)
        for route in api.app.routes
        if isinstance(route, Route) and ("{job_id}" in route.path or "{dataset_id}" in route.path)
        for method in sorted(route.methods or ())
    ]


def fill(path: str, values: dict[str, str]) -> str:
    for name, value in values.items():
        path = path.replace(f"{{{name}}}", value)
    return path


class TestAnotherProject:
    def test_every_route_answers_404_exactly_as_for_what_does_not_exist(
        self, api: Api, theirs: dict[str, str], other: Tenant
    ) -> None:
        nothing = theirs | {"job_id": new_id("job"), "dataset_id": new_id("ds")}
        routes = scoped_routes(api)
        assert len(routes) >= 12
        for method, path in routes:
            mine = api.request(method, fill(path, theirs))
            missing = api.request(method, fill(path, nothing))
            assert (mine.status_code, missing.status_code) == (404, 404), (method, path)
            if method != "HEAD":
                assert _shape(mine.json(), theirs) == _shape(missing.json(), nothing), (method, path)
        # And nothing of it touched the job.
        assert api.with_key(other.viewer).get(f"/v1/jobs/{theirs['job_id']}").json()["state"] == "queued"

    def test_the_same_routes_work_for_the_owner(self, api: Api, theirs: dict[str, str], other: Tenant) -> None:
        they = api.with_key(other.user)
        for method, path in scoped_routes(api):
            if method in {"GET", "HEAD"}:
                assert they.request(method, fill(path, theirs)).status_code == 200, (method, path)

    def test_lists_do_not_show_it(self, api: Api, theirs: dict[str, str]) -> None:
        for path in ("/v1/jobs", "/v1/datasets", "/v1/jobs?tag=team:whales", "/v1/jobs?state=queued"):
            assert api.get(path).json()["data"] == [], (path, theirs)

    def test_a_spec_cannot_use_its_data(self, api: Api, theirs: dict[str, str]) -> None:
        for source in (theirs["dataset_id"], new_id("ds")):
            answer = api.post("/v1/jobs", json=SPEC | {"data": {"source": source, "target": "label"}})
            (shown,) = problem(answer, 422, "invalid_spec")["errors"]
            assert shown["pointer"] == "/data/source"

    def test_its_data_is_not_found_by_what_this_process_remembers(
        self, api: Api, theirs: dict[str, str], other: Tenant
    ) -> None:
        spec = SPEC | {"data": {"source": theirs["dataset_id"], "target": "label"}}
        assert api.with_key(other.user).post("/v1/jobs/validate", json=spec).status_code == 200
        problem(api.post("/v1/jobs/validate", json=spec), 422, "invalid_spec")

    def test_a_device_that_it_holds_is_busy_but_does_not_say_with_what(
        self, api: Api, theirs: dict[str, str], other: Tenant, database: Database, clock: FakeClock
    ) -> None:
        with database.write() as session:
            worker = add_worker(session)
            lease = {"worker_id": worker.id, "job_id": theirs["job_id"], "attempt": 1, "epoch": 1}
            session.add(Lease(device_id="host-a-0", expires_at=START, **lease))
        clock.advance(1)
        (device,) = api.get("/v1/devices").json()["data"]
        assert (device["state"], device["job_id"], device["attempt"]) == ("busy", None, None)
        (device,) = api.with_key(other.viewer).get("/v1/devices").json()["data"]
        assert (device["job_id"], device["attempt"]) == (theirs["job_id"], 1)


def _shape(document: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """The answer without what differs between any two requests: the id that was asked for, and the request's own."""
    detail = document["detail"]
    for name in ("job_id", "dataset_id"):
        detail = detail.replace(names[name], name)
    return document | {"detail": detail, "request_id": ""}
