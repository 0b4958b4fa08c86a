"""Liveness, readiness and metrics."""

from pathlib import Path

import pytest
import structlog
from sqlalchemy import text

from app.accounts.keys import new_key
from app.accounts.service import Role, create_key
from app.api.views import HealthView
from app.broker import Bell
from app.db import Database
from app.fleet.models import Worker
from app.main import create_app
from app.migrations_runner import upgrade
from app.settings import Settings
from app.storage import Storage
from tests.api.client import ONE_DATABASE, SPEC, Api, problem, running
from tests.api.serve import wait_until
from tests.fakes import START, FakeClock
from tests.rows import add_worker


def checks(api: Api) -> dict[str, str]:
    """Each check's status; the whole is checked for its shape."""
    answer = api.with_key(None).get("/readyz?verbose")
    shown = HealthView.model_validate(answer.json())
    assert (shown.status == "down") == (answer.status_code == 503)
    return {name: check.status for name, check in shown.checks.items()}


class TestLive:
    @ONE_DATABASE
    def test_asks_nothing_so_a_lost_database_restarts_no_process(self, api: Api, database: Database) -> None:
        database.dispose()
        answer = api.with_key(None).get("/livez")
        assert (answer.status_code, answer.json()) == (200, {"status": "ok"})


class TestReady:
    def test_with_all_there_every_check_is_ok(self, api: Api, database: Database) -> None:
        with database.write() as session:
            add_worker(session)
        assert checks(api) == dict.fromkeys(("database", "storage", "broker", "workers", "queue"), "ok")

    @ONE_DATABASE
    def test_without_verbose_it_is_one_word(self, api: Api) -> None:
        answer = api.with_key(None).get("/readyz")
        assert (answer.status_code, answer.json()) == (200, {"status": "degraded"})

    def test_without_a_worker_it_is_degraded_and_ready(self, api: Api) -> None:
        assert checks(api)["workers"] == "degraded"

    @ONE_DATABASE
    def test_a_framework_that_nobody_runs_is_named(self, api: Api, database: Database) -> None:
        with database.write() as session:
            add_worker(session).frameworks = {"torch": {"version": "2", "interpreter": "/opt/torch/bin/python"}}
        shown = api.get("/readyz?verbose").json()["checks"]["workers"]
        assert shown == {"status": "degraded", "message": "No worker online runs tensorflow."}

    def test_a_database_that_cannot_be_reached_is_503(
        self, settings: Settings, storage: Storage, tmp_path: Path
    ) -> None:
        lost = Database(f"postgresql+psycopg://nobody@/nothing?host={tmp_path}")
        with running(create_app(settings, lost, storage, Bell(None))) as api:
            answer = api.get("/readyz?verbose")
            assert answer.status_code == 503
            assert answer.headers["retry-after"] == "2"
            assert answer.json()["checks"]["database"]["status"] == "down"
            assert str(tmp_path) not in answer.text
            # And what needs the database says so, with or without a key that could be looked up.
            refused = api.with_key(new_key().text).post("/v1/jobs", json=SPEC)
            assert (refused.status_code, refused.json()["code"]) == (503, "database_unavailable")
            assert refused.headers["retry-after"] == "2"
        lost.dispose()

    def test_before_the_migration_it_is_503_and_after_it_all_is_well(
        self, settings: Settings, storage: Storage, tmp_path: Path
    ) -> None:
        url = f"sqlite:///{tmp_path}/empty.db"
        empty = Database(url)
        with running(create_app(settings, empty, storage, Bell(None))) as api, structlog.testing.capture_logs() as logs:
            answer = api.get("/readyz?verbose")
            assert answer.status_code == 503
            assert "trainshed migrate" in answer.json()["checks"]["database"]["message"]
            refused = api.with_key(new_key().text).get("/v1/jobs")
            problem(refused, 503, "schema_not_ready")
            assert refused.headers["retry-after"] == "2"
            assert api.get("/livez").status_code == 200

            upgrade(url)
            with empty.write() as session:
                _, secret = create_key(session, project="p", user="u", name="n", role=Role.USER, now=START)
            assert api.get("/readyz").status_code == 200
            assert api.with_key(secret).get("/v1/jobs").status_code == 200
        assert [line for line in logs if line["log_level"] == "error"] == []
        empty.dispose()

    def test_a_schema_of_a_newer_version_is_told_from_an_older_one(
        self, settings: Settings, storage: Storage, tmp_path: Path
    ) -> None:
        url = f"sqlite:///{tmp_path}/newer.db"
        upgrade(url)
        newer = Database(url)
        with newer.write() as session:
            session.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        with running(create_app(settings, newer, storage, Bell(None))) as api:
            message = api.get("/readyz?verbose").json()["checks"]["database"]["message"]
            assert "newer than this version" in message
            refused = api.with_key(new_key().text).get("/v1/jobs")
            assert problem(refused, 503, "schema_not_ready")["detail"] == message
        newer.dispose()

    @ONE_DATABASE
    def test_a_storage_that_fails_is_503(self, api: Api) -> None:
        class Gone:
            def exists(self, key: str) -> bool:
                raise PermissionError(13, f"not for you: {key}")

        api.services.storage = Gone()  # type: ignore[assignment] # the one method that is called
        assert checks(api)["storage"] == "down"
        assert "not for you" not in api.get("/readyz?verbose").text

    @ONE_DATABASE
    def test_a_broker_that_does_not_answer_is_degraded(self, api: Api) -> None:
        class Unheard:
            healthy = False

            def ring(self, channel: str, message: str = "") -> None:
                """Nobody hears it."""

        api.services.bell = Unheard()
        assert checks(api)["broker"] == "degraded"
        assert api.submit()["state"] == "queued"

    def test_a_job_that_waits_although_devices_are_free_shows(
        self, api: Api, database: Database, clock: FakeClock
    ) -> None:
        # Processes, ports and pings may all be well while nobody schedules: only the outcome tells.
        with database.write() as session:
            worker_id = add_worker(session).id
        api.submit(device_type="cuda")
        assert checks(api)["queue"] == "ok"
        clock.advance(61)
        with database.write() as session:
            worker = session.get_one(Worker, worker_id)
            worker.heartbeat_at = clock.now()
        assert checks(api)["queue"] == "degraded"


@ONE_DATABASE
class TestManyWhoAsk:
    """Anybody may ask, without a key, so a question must not cost a look of its own."""

    @pytest.fixture
    def looks(self, api: Api) -> list[str]:
        """One entry for each look at the storage, which every look begins with or comes to."""
        counted: list[str] = []
        held = api.services.storage

        class Counted:
            def exists(self, key: str) -> bool:
                counted.append(key)
                return held.exists(key)

        api.services.storage = Counted()  # type: ignore[assignment] # the one method that is called
        return counted

    def test_get_one_look_a_second_while_all_is_well(
        self, api: Api, database: Database, looks: list[str], clock: FakeClock
    ) -> None:
        with database.write() as session:
            add_worker(session)
        for _ in range(3):
            assert api.get("/readyz").json() == {"status": "ok"}
        assert len(looks) == 1
        clock.advance(1.0)
        api.get("/readyz")
        assert len(looks) == 2

    def test_get_a_new_look_while_it_is_not(self, api: Api, database: Database, looks: list[str]) -> None:
        assert api.get("/readyz").json() == {"status": "degraded"}
        with database.write() as session:
            add_worker(session)
        api.services.hosts.forget()
        assert api.get("/readyz").json() == {"status": "ok"}
        assert len(looks) == 2

    def test_share_the_look_that_is_under_way(self, api: Api, looks: list[str]) -> None:
        with api.services.hosts._lock:  # the checks wait here, as they would for a slow database
            asked = [api.portal.start_task_soon(api.http.get, "/readyz") for _ in range(20)]
            wait_until(lambda: len(looks) == 1)
            api.get("/livez")
        assert {answer.result().json()["status"] for answer in asked} == {"degraded"}
        assert len(looks) == 1
