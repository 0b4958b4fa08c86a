"""`GET /metrics`: requests as they were answered, jobs, hosts and devices as they are."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import event, select

from app import __version__, metering
from app.api.fleet_gauges import DEVICE_STATES
from app.broker import Bell
from app.db import Database
from app.fleet.models import Device, Lease
from app.holds.models import Hold
from app.ids import new_id
from app.jobs.models import Job
from app.jobs.states import JobState
from app.main import create_app
from app.predictions.states import TaskKind
from app.predictions.tasks import export_request
from app.settings import Settings
from app.storage import Storage
from tests.api.client import ONE_DATABASE, SPEC, Api, Tenant
from tests.fakes import START, FakeClock
from tests.predictions.asking import make_asker
from tests.rows import add_worker

READINGS = {"utilization": 0.25, "memory_used_bytes": 20_000_000_000, "power_w": 311.5, "temperature_c": 64}
Ask = Callable[[str], dict[tuple[str, ...], float]]


def series(text: bytes, name: str) -> dict[tuple[str, ...], float]:
    """The samples of one name, by the values of their labels in the order of the labels' names."""
    return {
        tuple(value for _, value in sorted(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name == name
    }


@pytest.fixture
def ask(api: Api) -> Ask:
    """Asks over HTTP, with a key, and a second later than before, since the fleet may be as old as that."""

    def answer(name: str) -> dict[tuple[str, ...], float]:
        api.services.hosts.forget()
        api.services.queue.forget()
        found = api.get("/metrics")
        assert found.status_code == 200
        assert found.headers["content-type"].startswith("text/plain; version=0.0.4")
        return series(found.content, name)

    return answer


def change(database: Database, **values: Any) -> None:
    """Set columns of the one device."""
    with database.write() as session:
        device = session.execute(select(Device)).scalar_one()
        for name, value in values.items():
            setattr(device, name, value)


class TestRequests:
    @ONE_DATABASE
    def test_are_counted_by_the_template_of_their_route(self, api: Api, ask: Ask) -> None:
        job = api.submit()
        for path in (f"/v1/jobs/{job['id']}", "/v1/jobs/job_01k0000000000000000000000a", "/nothing/at/all"):
            api.get(path)
        api.request("BREW", "/v1/jobs")
        api.with_key(None).get("/v1/jobs")
        assert {labels: count for labels, count in ask("trainshed_http_requests_total").items() if count} == {
            ("POST", "/v1/jobs", "201"): 1,
            ("GET", "/v1/jobs/{job_id}", "200"): 1,
            ("GET", "/v1/jobs/{job_id}", "404"): 1,
            ("GET", "other", "404"): 1,
            ("other", "/v1/jobs", "405"): 1,
            ("GET", "other", "401"): 1,
        }
        assert ask("trainshed_http_request_duration_seconds_count")["GET", "/v1/jobs/{job_id}"] == 2

    @ONE_DATABASE
    def test_a_share_of_failures_can_be_told_before_there_is_one(self, ask: Ask) -> None:
        assert ask("trainshed_http_requests_total") == {("GET", "other", "500"): 0}


class TestJobs:
    def test_are_counted_by_state_and_framework_and_what_is_not_there_is_0(
        self, api: Api, ask: Ask, database: Database
    ) -> None:
        with database.write() as session:
            add_worker(session, devices=3)
        first, *_ = [api.submit(device_type="cuda")["id"] for _ in range(3)]
        api.submit(framework="tensorflow", device_type="cuda")
        with database.write() as session:
            session.get_one(Job, first).state = JobState.FAILED.value
        jobs = ask("trainshed_jobs")
        assert len(jobs) == 2 * len(JobState)
        assert {labels: count for labels, count in jobs.items() if count} == {
            ("torch", "queued"): 2,
            ("torch", "failed"): 1,
            ("tensorflow", "queued"): 1,
        }

    @ONE_DATABASE
    def test_those_that_are_over_are_counted_once_a_minute(
        self, api: Api, ask: Ask, database: Database, clock: FakeClock
    ) -> None:
        job_id = api.submit()["id"]
        assert ask("trainshed_jobs")["torch", "succeeded"] == 0
        with database.write() as session:
            session.get_one(Job, job_id).state = JobState.SUCCEEDED.value
        assert (ask("trainshed_jobs")["torch", "queued"], ask("trainshed_jobs")["torch", "succeeded"]) == (0, 0)
        clock.advance(60)
        assert ask("trainshed_jobs")["torch", "succeeded"] == 1

    def test_the_oldest_that_waits_is_told_by_its_time_and_nothing_while_none_does(
        self, api: Api, ask: Ask, database: Database, clock: FakeClock
    ) -> None:
        name = "trainshed_oldest_queued_job_timestamp_seconds"
        assert ask(name) == {}
        job_id = api.submit()["id"]
        clock.advance(100)
        api.submit()
        assert ask(name) == {(): START.timestamp()}
        with database.write() as session:
            session.get_one(Job, job_id).state = JobState.CANCELLED.value
        assert ask(name) == {(): START.timestamp() + 100}

    def test_those_that_fit_on_free_devices_are_told_as_long_as_nobody_places_them(
        self, api: Api, ask: Ask, database: Database
    ) -> None:
        with database.write() as session:
            add_worker(session)
        assert ask("trainshed_jobs_startable") == {(): 0}
        api.submit(device_type="cuda")
        api.submit(device_type="cuda")
        assert ask("trainshed_jobs_startable") == {(): 1}, "there is one device"

    def test_submits_are_counted_by_the_process(self, api: Api, ask: Ask) -> None:
        before = ask("trainshed_jobs_submitted_total")
        api.submit()
        refused = api.post("/v1/jobs", json=SPEC | {"data": "nothing"})
        assert refused.status_code == 422
        after = ask("trainshed_jobs_submitted_total")
        changed = {labels: after[labels] - before[labels] for labels in after}
        assert changed == {("torch",): 1, ("tensorflow",): 0, ("python",): 0}

    def test_open_predictions_and_exports_are_counted(self, ask: Ask, database: Database, clock: FakeClock) -> None:
        asker = make_asker(database, clock)
        asker.taken()
        asker.ask()
        asker.ask(TaskKind.EXPORT, export_request("onnx"))
        assert ask("trainshed_model_tasks") == {
            ("predict", "queued"): 1,
            ("predict", "running"): 1,
            ("export", "queued"): 1,
            ("export", "running"): 0,
        }


class TestDevices:
    @pytest.mark.parametrize(
        ("columns", "state"),
        [
            ({}, "free"),
            ({"health": "unhealthy"}, "unusable"),
            ({"health": "gone"}, "unusable"),
            ({"health": "in_use_elsewhere"}, "in_use_elsewhere"),
            ({"quarantined_at": START, "quarantine_reason": "Xid 79"}, "quarantined"),
        ],
        ids=["free", "unhealthy", "gone", "foreign", "quarantined"],
    )
    def test_are_counted_by_host_and_state_with_zeros(
        self, ask: Ask, database: Database, columns: dict[str, Any], state: str
    ) -> None:
        with database.write() as session:
            add_worker(session)
        change(database, **columns)
        expected = {("host-a", name): float(name == state) for name in DEVICE_STATES}
        assert ask("trainshed_devices") == expected

    @pytest.mark.parametrize(("holder", "state"), [("job_1", "busy"), ("hold_1", "held")])
    def test_who_has_one_is_told_apart(self, ask: Ask, database: Database, holder: str, state: str) -> None:
        with database.write() as session:
            worker = add_worker(session)
            lease = {"attempt": 0, "epoch": 1, "expires_at": START + timedelta(minutes=1)}
            session.add(Lease(device_id="host-a-0", worker_id=worker.id, job_id=holder, **lease))
        assert ask("trainshed_devices")["host-a", state] == 1
        assert ask("trainshed_devices_idle") == {("host-a",): 0}
        change(database, idle_since=START)
        assert ask("trainshed_devices_idle") == {("host-a",): 1}

    def test_what_a_driver_said_is_shown_and_not_for_long(self, ask: Ask, database: Database, clock: FakeClock) -> None:
        with database.write() as session:
            add_worker(session)
        change(database, readings=READINGS, readings_at=START)
        names = ("utilization_ratio", "memory_used_bytes", "power_watts", "temperature_celsius")
        told = [ask(f"trainshed_device_{name}") for name in names]
        assert told == [{("host-a-0", "host-a"): value} for value in READINGS.values()]
        assert ask("trainshed_device_memory_size_bytes") == {("host-a-0", "host-a"): 80_000_000_000}
        assert ask("trainshed_device_info") == {("host-a-0", "host-a", "cuda", "Test card"): 1}
        clock.advance(301)
        assert ask("trainshed_device_utilization_ratio") == {}

    def test_what_it_could_not_say_is_left_out(self, ask: Ask, database: Database) -> None:
        with database.write() as session:
            add_worker(session)
        change(database, readings={"memory_used_bytes": 5, "utilization": None}, readings_at=START)
        assert ask("trainshed_device_memory_used_bytes") == {("host-a-0", "host-a"): 5}
        assert ask("trainshed_device_utilization_ratio") == {}

    def test_open_holds_are_counted(self, ask: Ask, database: Database, tenant: Tenant) -> None:
        with database.write() as session:
            worker = add_worker(session)
            for ended_at in (None, START):
                hold = Hold(
                    id=new_id("hold"),
                    project_id=tenant.project_id,
                    owner="ana",
                    key_id=new_id("key"),
                    worker_id=worker.id,
                    devices=[],
                    created_at=START,
                    until=START,
                    ended_at=ended_at,
                )
                session.add(hold)
        assert ask("trainshed_holds") == {(): 1}


class TestHosts:
    def test_are_told_by_their_id_and_named_once(self, ask: Ask, database: Database) -> None:
        with database.write() as session:
            add_worker(session, "5f3a").host_name = "gpu-box"
        assert ask("trainshed_worker_info") == {("5f3a", "gpu-box", "0"): 1}
        assert ask("trainshed_worker_last_heartbeat_timestamp_seconds") == {("5f3a",): START.timestamp()}

    @pytest.mark.parametrize(
        ("passed", "worker_state", "state"),
        [(0, "online", "online"), (3600, "online", "silent"), (3600, "offline", "left"), (0, "offline", "left")],
    )
    def test_one_that_said_goodbye_is_told_from_one_that_fell_silent(
        self, ask: Ask, database: Database, clock: FakeClock, passed: float, worker_state: str, state: str
    ) -> None:
        with database.write() as session:
            add_worker(session).state = worker_state
        clock.advance(passed)
        found = ask("trainshed_worker_state")
        assert found == {("host-a", name): float(name == state) for name in ("online", "left", "silent")}

    def test_what_keeps_one_from_taking_jobs_is_told(self, ask: Ask, database: Database) -> None:
        with database.write() as session:
            worker = add_worker(session)
            worker.cordoned = True
            worker.condition = {"blockers": [{"code": "disk_reserve", "message": "The disk is full."}]}
        assert ask("trainshed_worker_cordoned") == {("host-a",): 1}
        assert ask("trainshed_worker_blocked") == {("host-a",): 1}

    def test_sizes_of_a_host_are_those_that_its_worker_told_while_it_is_there(
        self, ask: Ask, database: Database, clock: FakeClock
    ) -> None:
        with database.write() as session:
            add_worker(session).condition = {"disk_free_bytes": 7, "disk_total_bytes": 70, "shm_bytes": None}
            add_worker(session, "host-b", devices=0)
        assert ask("trainshed_host_disk_free_bytes") == {("host-a",): 7}
        assert ask("trainshed_host_disk_size_bytes") == {("host-a",): 70}
        assert ask("trainshed_host_shm_size_bytes") == {}
        clock.advance(3600)
        assert ask("trainshed_host_disk_free_bytes") == {}


@ONE_DATABASE
class TestProcess:
    def test_tells_what_it_is(self, ask: Ask) -> None:
        assert ask("trainshed_build_info") == {("", __version__): 1}
        assert ask("trainshed_sse_connections") == {(): 0}
        assert ask("trainshed_database_up") == {(): 1}
        assert ask("trainshed_broker_up") == {}, "there is none"
        assert ask("process_resident_memory_bytes")[()] > 0

    def test_what_other_processes_do_is_not_shown_as_nothing(self, ask: Ask) -> None:
        names = {family.name for registry in (metering.CONTROL, metering.WORKER) for family in registry.collect()}
        assert [name for name in names if ask(name) or ask(f"{name}_total")] == []


class TestWithoutDatabase:
    @pytest.mark.parametrize(
        "url",
        ["postgresql+psycopg://nobody@/nothing?host={folder}", "sqlite:///{folder}/empty.db"],
        ids=["away", "empty"],
    )
    def test_it_says_so_and_shows_the_rest(
        self, settings: Settings, storage: Storage, tmp_path: Path, url: str
    ) -> None:
        url = url.format(folder=tmp_path)
        lost = Database(url)
        app = create_app(settings, lost, storage, Bell(None))
        text = app.state.telemetry.text()
        assert series(text, "trainshed_database_up") == {(): 0}
        assert series(text, "trainshed_jobs") == {}
        assert series(text, "trainshed_build_info") == {("", __version__): 1}
        lost.dispose()


@ONE_DATABASE
class TestCost:
    def test_no_scrape_reads_all_jobs_that_there_ever_were(self, api: Api, ask: Ask, database: Database) -> None:
        api.submit()
        asked: list[tuple[str, Any]] = []

        def keep(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: object) -> None:
            asked.append((statement, parameters))

        event.listen(database.reader, "before_cursor_execute", keep)
        ask("trainshed_jobs")
        event.remove(database.reader, "before_cursor_execute", keep)
        of_jobs = [pair for pair in asked if "FROM jobs" in pair[0]]
        assert len(of_jobs) >= 4
        with database.read() as session:
            for statement, parameters in of_jobs:
                plan = session.connection().exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", parameters).all()
                assert "SCAN jobs" not in str(plan), (statement, plan)
