"""A job's events over HTTP: pages, and a stream that can be left and resumed at any event."""

import hashlib
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi import FastAPI

from app.accounts.service import revoke_key
from app.api import journal as journal_routes
from app.api.hub import Pace
from app.api.sse import StillAllowed
from app.api.views import EventPage
from app.broker import CHANNEL_JOURNAL, Bell
from app.db import Database
from app.jobs.journal import Entry
from app.main import create_app
from app.settings import Settings
from app.storage import Storage
from tests.api.client import ONE_DATABASE, Api, Tenant, problem
from tests.api.conftest import QUICK
from tests.api.journals import Writer, metric
from tests.api.serve import open_events, serving, wait_until
from tests.fakes import START, FakeClock


@pytest.fixture
def writer(database: Database, tenant: Tenant) -> Writer:
    return Writer(database, tenant.project_id)


class TestPage:
    def test_pages_hold_every_event_once(self, api: Api, writer: Writer) -> None:
        writer.metrics(7)
        last = writer.finish()
        path: str | None = f"/v1/jobs/{writer.job_id}/events?limit=3"
        seen: list[int] = []
        while path is not None:
            answer = api.get(path)
            page = EventPage.model_validate(answer.json())
            seen += [event.seq for event in page.data]
            link = answer.headers.get("link")
            assert (link is not None) == page.has_more == (page.next_after is not None)
            path = link.removesuffix('>; rel="next"').removeprefix("<") if link else None
        assert seen == list(range(1, last + 1))

    def test_an_event_is_the_stored_entry_with_its_number_and_time(self, api: Api, writer: Writer) -> None:
        writer.write(
            metric(3, "val_loss", "NaN"), Entry("notice", {"code": "x", "message": "ä\n"}), Entry("telemetry", {})
        )
        first, second, third = api.get(f"/v1/jobs/{writer.job_id}/events").json()["data"]
        place = {"at": "2026-01-31T12:00:00.000000Z", "attempt": 1}
        points = {"val_loss": {"step": [3], "epoch": [1], "value": ["NaN"]}}
        assert first == {"seq": 1, "kind": "metric", "points": points} | place
        assert second == {"seq": 2, "kind": "notice", "code": "x", "message": "ä\n"} | place
        assert third == {"seq": 3, "kind": "telemetry"} | place

    def test_there_may_be_none(self, api: Api, writer: Writer) -> None:
        page = api.get(f"/v1/jobs/{writer.job_id}/events").json()
        assert page == {"object": "list", "data": [], "has_more": False, "next_after": None}

    @pytest.mark.parametrize(
        "text", ["abc", "-1", "999999", "4", "1.0", "1e3", " 1", "\u0663", "9" * 400, "0" * 20 + "9", "0x1", "+1"]
    )
    def test_a_number_that_no_event_has_is_400(self, api: Api, writer: Writer, text: str) -> None:
        writer.metrics(3)
        for accept in ("application/json", "text/event-stream"):
            answer = api.get(f"/v1/jobs/{writer.job_id}/events", params={"after": text}, headers={"Accept": accept})
            assert "1 to 3" in problem(answer, 400, "invalid_event_id")["detail"]

    def test_zero_and_nothing_mean_the_start(self, api: Api, writer: Writer) -> None:
        writer.metrics(2)
        for query in ("", "?after=0", "?after="):
            assert len(api.get(f"/v1/jobs/{writer.job_id}/events{query}").json()["data"]) == 2


def read_some(url: str, job_id: str, key: str, after: str | None, count: int) -> list[int]:
    """Open a stream, read so many events (or to its end), and hang up without a word."""
    seen: list[int] = []
    with open_events(url, job_id, key, after) as stream:
        if stream.response.status_code == 204:
            return seen
        for event in stream:
            assert event.id == str(event.data["seq"])
            assert event.event == event.data["kind"]
            seen.append(event.data["seq"])
            if len(seen) == count:
                break
    return seen


class TestStream:
    def test_replays_goes_on_and_ends_after_the_final_state(self, url: str, writer: Writer, tenant: Tenant) -> None:
        writer.metrics(3)
        with open_events(url, writer.job_id, tenant.viewer) as stream:
            events = iter(stream)
            assert [next(events).id for _ in range(3)] == ["1", "2", "3"]
            writer.lines("epoch 1 done")
            live = next(events)
            assert (live.id, live.event, live.data["lines"]) == ("4", "log", ["epoch 1 done"])
            writer.finish()
            last = next(events)
            assert (last.event, last.data["state"]) == ("state", "succeeded")
            assert list(events) == []

    def test_what_cards_say_comes_as_telemetry(self, url: str, writer: Writer, tenant: Tenant) -> None:
        devices = {"GPU-3": {"utilization": 0.3, "memory_used_bytes": 80 << 30}, "MIG-4": {"memory_used_bytes": 0}}
        writer.write(Entry("telemetry", {"devices": devices}))
        with open_events(url, writer.job_id, tenant.viewer) as stream:
            event = next(iter(stream))
        assert (event.event, event.data["devices"]) == ("telemetry", devices)

    @ONE_DATABASE
    def test_headers_keep_proxies_from_holding_it_back(self, url: str, writer: Writer, tenant: Tenant) -> None:
        with open_events(url, writer.job_id, tenant.viewer) as stream:
            headers = stream.response.headers
            assert headers["content-type"].startswith("text/event-stream")
            assert headers["cache-control"] == "no-store, no-transform"
            assert headers["x-accel-buffering"] == "no"
            assert "content-length" not in headers
            assert "content-encoding" not in headers

    @ONE_DATABASE
    def test_a_quiet_stream_sends_comments(
        self, url: str, writer: Writer, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(journal_routes, "_QUIET_S", 0.0)
        with open_events(url, writer.job_id, tenant.viewer) as stream:
            lines = stream.response.iter_lines()
            assert [next(lines) for _ in range(6)] == ["retry: 2000", "", ": keep-alive", "", ": keep-alive", ""]

    def test_seven_then_the_rest(self, url: str, writer: Writer, tenant: Tenant) -> None:
        writer.metrics(11)
        last = writer.finish()
        first = read_some(url, writer.job_id, tenant.viewer, None, 7)
        rest = read_some(url, writer.job_id, tenant.viewer, str(first[-1]), 1000)
        assert first + rest == list(range(1, last + 1))

    def test_twenty_random_rounds_while_it_is_written(self, url: str, writer: Writer, tenant: Tenant) -> None:
        chance = random.Random(62)  # noqa: S311 - rounds that can be repeated, not secrets
        writer.metrics(1)
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(lambda: [writer.metrics(chance.randint(1, 4), n) for n in range(2, 60)])
            seen: list[int] = []
            for _ in range(20):
                after = str(seen[-1]) if seen else None
                seen += read_some(url, writer.job_id, tenant.viewer, after, chance.randint(1, 5))
            writing.result()
        last = writer.finish()
        seen += read_some(url, writer.job_id, tenant.viewer, str(seen[-1]), 10_000)
        assert seen == list(range(1, last + 1))

    def test_after_a_restart_of_the_server_it_goes_on_where_it_was(
        self,
        url: str,
        writer: Writer,
        tenant: Tenant,
        settings: Settings,
        database: Database,
        storage: Storage,
        clock: FakeClock,
    ) -> None:
        writer.metrics(5)
        first = read_some(url, writer.job_id, tenant.viewer, None, 3)
        app = create_app(settings, database, storage, Bell(None), clock=clock, pace=QUICK)
        with serving(app, settings) as restarted:
            writer.finish()
            rest = read_some(restarted, writer.job_id, tenant.viewer, str(first[-1]), 100)
        assert first + rest == [1, 2, 3, 4, 5, 6]

    @ONE_DATABASE
    def test_resuming_at_the_end_of_a_finished_job_is_204(self, url: str, writer: Writer, tenant: Tenant) -> None:
        writer.metrics(2)
        last = writer.finish()
        with open_events(url, writer.job_id, tenant.viewer, str(last)) as stream:
            assert stream.response.status_code == 204
        assert read_some(url, writer.job_id, tenant.viewer, str(last - 1), 10) == [last]

    @ONE_DATABASE
    def test_the_header_wins_over_the_query(self, url: str, writer: Writer, tenant: Tenant) -> None:
        # A browser that reconnects sends the address it was given first, and the header with what it has since.
        writer.metrics(5)
        writer.finish()
        with open_events(url, writer.job_id, tenant.viewer, "4", after="1") as stream:
            assert [event.id for event in stream] == ["5", "6"]

    @ONE_DATABASE
    def test_without_a_key_or_in_another_project_there_is_none(
        self, url: str, writer: Writer, tenant: Tenant, other: Tenant
    ) -> None:
        for key, status in (("x", 401), ("ts_wrong", 401), (other.user, 404), (tenant.viewer, 200)):
            with open_events(url, writer.job_id, key) as stream:
                assert stream.response.status_code == status

    @ONE_DATABASE
    def test_a_revoked_key_ends_its_open_stream(
        self,
        app: FastAPI,
        url: str,
        writer: Writer,
        tenant: Tenant,
        database: Database,
        clock: FakeClock,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(StillAllowed.__init__, "__defaults__", (0.0,))
        with open_events(url, writer.job_id, tenant.viewer) as stream:
            lines = stream.response.iter_lines()
            assert next(lines) == "retry: 2000"
            with database.write() as session:
                revoke_key(session, _key_id(app, tenant.viewer), START)
            clock.advance(2)
            assert [line for line in lines if line] == []

    @ONE_DATABASE
    def test_a_client_that_hangs_up_is_forgotten(self, app: FastAPI, url: str, writer: Writer, tenant: Tenant) -> None:
        hub = app.state.services.hub
        writer.metrics(1)
        assert read_some(url, writer.job_id, tenant.viewer, None, 1) == [1]
        wait_until(lambda: hub.followers == 0)

    @ONE_DATABASE
    def test_a_key_cannot_hold_more_streams_than_its_share(
        self, app: FastAPI, url: str, writer: Writer, tenant: Tenant
    ) -> None:
        app.state.services.streams._limit = 1
        with open_events(url, writer.job_id, tenant.viewer) as first:
            lines = first.response.iter_lines()
            assert next(lines) == "retry: 2000"
            with open_events(url, writer.job_id, tenant.viewer) as second:
                second.response.read()
                problem(second.response, 429, "too_many_streams")
                assert second.response.headers["retry-after"] == "5"
            with open_events(url, writer.job_id, tenant.user) as another:
                assert another.response.status_code == 200
        wait_until(lambda: app.state.services.streams._held.total() == 0)

    @ONE_DATABASE
    def test_a_stop_of_the_server_ends_open_streams_in_good_order(
        self, app: FastAPI, settings: Settings, writer: Writer, tenant: Tenant
    ) -> None:
        ended = threading.Event()
        opened = threading.Event()

        def follow(url: str) -> list[str]:
            with open_events(url, writer.job_id, tenant.viewer) as stream:
                opened.set()
                lines = list(stream.response.iter_lines())  # to the end, which must be a proper one
            ended.set()
            return lines

        with ThreadPoolExecutor(1) as pool:
            with serving(app, settings) as url:
                following = pool.submit(follow, url)
                assert opened.wait(20)
            # `serving` waits for the server's end: had the stream held it, the net would have cut it off by then.
            assert [line for line in following.result(20) if line] == ["retry: 2000"]
        assert ended.is_set()

    @ONE_DATABASE
    def test_no_connection_to_the_database_is_held_between_events(
        self, url: str, writer: Writer, tenant: Tenant, database: Database
    ) -> None:
        writer.metrics(1)
        with open_events(url, writer.job_id, tenant.viewer) as stream:
            events = iter(stream)
            assert next(events).id == "1"
            wait_until(lambda: database.reader.pool.checkedout() == 0)  # type: ignore[attr-defined] # of QueuePool
            writer.finish()
            assert [event.id for event in events] == ["2"]

    @ONE_DATABASE
    def test_a_ring_over_redis_brings_the_event_without_a_look(
        self,
        settings: Settings,
        database: Database,
        storage: Storage,
        clock: FakeClock,
        writer: Writer,
        tenant: Tenant,
        redis_url: str,
    ) -> None:
        with_redis = settings.model_copy(update={"broker_url": redis_url})
        seldom = Pace(poll_s=3600.0, tick_s=0.05)
        app = create_app(with_redis, database, storage, Bell(None), clock=clock, pace=seldom)
        bell = Bell(redis_url)
        bell.start()
        writer.metrics(1)
        try:
            with serving(app, with_redis) as url, open_events(url, writer.job_id, tenant.viewer) as stream:
                events = iter(stream)
                assert next(events).id == "1"
                writer.finish()
                bell.ring(CHANNEL_JOURNAL, writer.job_id)
                assert [event.id for event in events] == ["2"]
        finally:
            bell.stop()


def _key_id(app: FastAPI, secret: str) -> str:
    known: Iterator[str] = (
        principal.key_id
        for digest, (principal, _) in app.state.services.authenticator._known.items()
        if digest == hashlib.sha256(secret.encode()).digest()
    )
    return next(known)
