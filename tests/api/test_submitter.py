"""Jobs accepted in groups: one transaction for several, none of them the worse for it; and the doorbell after it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from socket import AF_UNIX, SOCK_STREAM, socket
from typing import Any

import orjson
import pytest
import structlog
from sqlalchemy import event, func, select
from sqlalchemy.orm import Session

from app.accounts.service import Principal, Role
from app.api.submission import Created, Order
from app.api.submitter import accept
from app.broker import CHANNEL_JOURNAL, CHANNEL_WANTED, Bell, Listener
from app.db import Database, DatabaseDown
from app.errors import TrainshedError
from app.jobs.models import Job
from app.main import create_app
from app.scheduling.run import Times, schedule
from app.settings import Settings
from app.spec import InvalidSpec
from app.storage import Storage
from tests.api.client import ONE_DATABASE, SPEC, Api, Tenant, problem, running
from tests.fakes import FakeClock
from tests.rows import add_worker

TIMES = Times(claim_s=15, lease_s=60, offline_after_s=15)


@pytest.fixture
def principal(tenant: Tenant) -> Principal:
    return Principal("key_x", tenant.project_id, tenant.project, "ada", Role.USER)


def order(principal: Principal, key: str | None = None, **changes: Any) -> Order:
    return Order(principal, orjson.dumps(SPEC | changes), key)


def count_jobs(database: Database) -> int:
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(Job)) or 0


@contextmanager
def counted_commits(database: Database) -> Iterator[list[int]]:
    commits: list[int] = []

    def note(_connection: object) -> None:
        commits.append(1)

    event.listen(database.writer, "commit", note)
    try:
        yield commits
    finally:
        event.remove(database.writer, "commit", note)


class Gone:
    """A transaction with a database that went away."""

    def __enter__(self) -> Session:
        raise DatabaseDown("The database does not answer; try again.", retry_after_s=2)

    def __exit__(self, *_: object) -> None: ...


class TestGroup:
    def test_shares_one_commit(self, api: Api, principal: Principal, database: Database) -> None:
        with counted_commits(database) as commits:
            outcomes = accept(api.services, [order(principal) for _ in range(5)])
        assert len(commits) == 1
        assert len({outcome.job_id for outcome in outcomes if isinstance(outcome, Created)}) == 5
        assert count_jobs(database) == 5

    def test_each_is_answered_for_itself_in_its_place(self, api: Api, principal: Principal, database: Database) -> None:
        orders = [
            order(principal, "a"),
            order(principal, device_count="two"),
            Order(principal, b"{", None),
            order(principal, "a"),
            order(principal, "a", priority=3),
            order(principal),
        ]
        first, wrong, broken, repeat, mismatch, last = accept(api.services, orders)
        assert isinstance(first, Created)
        assert isinstance(last, Created)
        assert isinstance(repeat, Created)
        assert isinstance(wrong, InvalidSpec)
        assert (repeat.job_id, repeat.replayed, repeat.body) == (first.job_id, True, first.body)
        assert [found.code for found in (broken, mismatch) if isinstance(found, TrainshedError)] == [
            "malformed_json",
            "idempotency_mismatch",
        ]
        assert count_jobs(database) == 2

    def test_only_a_table_of_moderate_size_is_kept_in_memory(self, api: Api) -> None:
        def kept(columns: int) -> bool:
            rows = [",".join([*(f"t{row}" for _ in range(columns)), str(row % 2)]) for row in range(900)]
            table = "\n".join([",".join([*(f"c{place}" for place in range(columns)), "y"]), *rows])
            sent = api.post("/v1/datasets", content=table.encode(), headers={"Content-Type": "text/csv"})
            source = sent.json()["id"]
            assert api.post("/v1/jobs/validate", json=SPEC | {"data": {"source": source, "target": "y"}}).is_success
            return any(key[1] == source for key in api.services.schemas)

        assert kept(1)
        assert not kept(6)  # 5 400 labels

    def test_one_that_cannot_be_written_does_not_take_the_others_with_it(
        self, api: Api, principal: Principal, database: Database
    ) -> None:
        # The data set goes away after it was checked: its insert fails on the foreign key, with the whole group.
        sent = api.post("/v1/datasets", content=b"a,b\n1,x\n2,y\n3,x\n4,y\n5,x\n", headers={"Content-Type": "text/csv"})
        gone: dict[str, Any] = {"data": {"source": sent.json()["id"], "target": "b"}}
        assert api.post("/v1/jobs/validate", json=SPEC | gone).status_code == 200
        remembered = dict(api.services.schemas)
        assert api.delete(f"/v1/datasets/{sent.json()['id']}").status_code == 204
        api.services.schemas.update(remembered)

        before, refused, after = accept(api.services, [order(principal), order(principal, **gone), order(principal)])
        assert isinstance(before, Created)
        assert isinstance(after, Created)
        assert isinstance(refused, InvalidSpec)
        assert refused.problems[0].pointer == "/data/source"
        assert count_jobs(database) == 2

    def test_requests_that_come_together_are_grouped(self, api: Api, database: Database) -> None:
        api.submit()  # the first request of each connection and cache
        with counted_commits(database) as commits:
            answers = api.together([("POST", "/v1/jobs", {"json": SPEC})] * 16)
        assert [answer.status_code for answer in answers] == [201] * 16
        assert len({answer.json()["id"] for answer in answers}) == 16
        assert count_jobs(database) == 17
        assert 1 <= len(commits) <= 16

    @ONE_DATABASE
    def test_a_lost_database_is_told_to_every_client(
        self, api: Api, database: Database, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        api.submit()
        with monkeypatch.context() as edge:
            edge.setattr(database, "write", Gone)
            answers = api.together([("POST", "/v1/jobs", {"json": SPEC})] * 3)
        for answer in answers:
            problem(answer, 503, "database_unavailable")
            assert answer.headers["retry-after"] == "2"
        assert count_jobs(database) == 1


class TestCommitBeforeRing:
    """A worker must never be told of a job that is not there yet, and a job must not need to be told of."""

    def test_when_the_bell_rings_the_job_can_be_read_and_placed(
        self, api: Api, database: Database, principal: Principal
    ) -> None:
        seen: list[int] = []

        class Witness:
            healthy = None

            def ring(self, channel: str, message: str = "") -> None:
                # The most eager listener there can be: it looks while the bell still rings.
                assert (channel, message) == (CHANNEL_WANTED, "")
                seen.append(count_jobs(database))

        api.services.bell = Witness()
        accept(api.services, [order(principal), order(principal)])
        assert seen == [2]

    def test_a_job_whose_ring_was_lost_is_placed_by_the_next_pass_exactly_once(
        self, api: Api, database: Database
    ) -> None:
        with database.write() as session:
            add_worker(session)
        # Committed, and then the process is gone: nothing was rung, for there is no broker at all.
        job = api.submit(device_type="cuda")
        placed = schedule(database, TIMES) + schedule(database, TIMES)
        assert [(found.job_id, found.attempt) for found in placed] == [(job["id"], 1)]

    def test_a_refused_job_rings_nobody(self, api: Api, principal: Principal) -> None:
        class Silent:
            healthy = None

            def ring(self, channel: str, message: str = "") -> None:
                pytest.fail(f"rang {channel} {message}")

        api.services.bell = Silent()
        accept(api.services, [order(principal, device_count=0)])


@ONE_DATABASE
class TestBroker:
    def application(
        self, settings: Settings, database: Database, storage: Storage, clock: FakeClock, bell: Bell
    ) -> Any:
        return create_app(settings, database, storage, bell, clock=clock)

    def test_a_submit_and_a_cancel_ring_redis(
        self, settings: Settings, database: Database, storage: Storage, clock: FakeClock, tenant: Tenant, redis_url: str
    ) -> None:
        heard: Queue[tuple[str, str]] = Queue()
        listening = threading.Event()
        listener = Listener(
            redis_url, [CHANNEL_WANTED, CHANNEL_JOURNAL], lambda *message: heard.put(message), listening.set
        )
        bell = Bell(redis_url)
        bell.start()
        listener.start()
        assert listening.wait(10)
        try:
            with running(self.application(settings, database, storage, clock, bell), tenant.user) as api:
                job = api.submit()
                assert heard.get(timeout=10) == (CHANNEL_WANTED, "")
                api.post(f"/v1/jobs/{job['id']}/cancel")
                assert [heard.get(timeout=10), heard.get(timeout=10)] == [
                    (CHANNEL_WANTED, ""),
                    (CHANNEL_JOURNAL, job["id"]),
                ]
        finally:
            listener.stop()
            bell.stop()

    @pytest.mark.parametrize("kind", ["absent", "silent"])
    def test_without_an_answer_from_redis_jobs_are_accepted_all_the_same(
        self,
        settings: Settings,
        database: Database,
        storage: Storage,
        clock: FakeClock,
        tenant: Tenant,
        short_socket: Path,
        kind: str,
    ) -> None:
        with socket(AF_UNIX, SOCK_STREAM) as deaf:
            if kind == "silent":  # it takes connections and never says anything
                deaf.bind(str(short_socket))
                deaf.listen()
            bell = Bell(f"unix://{short_socket}")
            bell.start()
            with running(self.application(settings, database, storage, clock, bell), tenant.user) as api:
                # More than any buffer on the way would have to hold before the client waits.
                jobs = [api.submit() for _ in range(20)]
                assert api.get(f"/v1/jobs/{jobs[-1]['id']}").json()["state"] == "queued"
                assert api.get("/readyz").status_code == 200
            bell.stop()
        assert count_jobs(database) == 20


@ONE_DATABASE
class TestLog:
    def test_each_job_is_told_with_the_request_that_made_it_also_when_they_share_a_commit(self, api: Api) -> None:
        requests = [
            ("POST", "/v1/jobs", {"json": SPEC, "headers": {"X-Request-Id": f"request-{number}"}})
            for number in range(8)
        ]
        with structlog.testing.capture_logs([structlog.contextvars.merge_contextvars]) as said:
            answers = api.together(requests)
        made = {answer.headers["x-request-id"]: answer.json()["id"] for answer in answers}
        told = [line for line in said if line["event"] == "job_submitted"]
        assert {line["request_id"]: line["job_id"] for line in told} == made
        assert {(line["owner"], line["replayed"]) for line in told} == {("user-of-birds", False)}
