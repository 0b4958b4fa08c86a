"""The event hub: one reader per job for any number of followers, and never an event skipped or repeated."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest
import structlog

from app.api import hub as hub_module
from app.api.hub import PAGE, Frame, Hub, Pace, Tail, frame
from app.db import Database, DatabaseDown
from app.jobs.journal import JournalEvent
from tests.api.client import ONE_DATABASE, Tenant
from tests.api.journals import Writer
from tests.fakes import START

# Nobody looks without a ring for so long that a test which passes did not need to.
RUNG_ONLY = Pace(poll_s=60.0, tick_s=0.05)
LOOKING = Pace(poll_s=0.01, tick_s=0.05)


@pytest.fixture
def writer(database: Database, tenant: Tenant) -> Writer:
    return Writer(database, tenant.project_id)


async def collect(hub: Hub, job_id: str, after: int = 0, *, until: int | None = None) -> list[int]:
    """The numbers that one follower gets, to the end of the job or up to `until`."""
    seen: list[int] = []
    async for frames in hub.follow(job_id, after):
        seen += [found.seq for found in frames]
        if until is not None and seen and seen[-1] >= until:
            break
    return seen


async def eventually(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


def caught_up(hub: Hub, job_id: str) -> bool:
    """Whether somebody follows the job and has seen all that was there."""
    return job_id in hub._tails and hub._tails[job_id].floor is not None


def run(work: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(30):
            return await work

    return asyncio.run(bounded())


def counting(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Every read of the database from now on, as the position it was read from."""
    reads: list[int] = []
    read: Callable[[str, int], Awaitable[tuple[list[Frame], bool]]] = hub._read

    async def counted(job_id: str, after: int) -> tuple[list[Frame], bool]:
        reads.append(after)
        return await read(job_id, after)

    monkeypatch.setattr(hub, "_read", counted)
    return reads


class TestFollow:
    def test_replays_what_is_there_and_ends_with_the_last_state(self, database: Database, writer: Writer) -> None:
        writer.metrics(5)
        last = writer.finish()
        assert run(collect(Hub(database, LOOKING), writer.job_id)) == list(range(1, last + 1))

    def test_begins_strictly_after_the_position(self, database: Database, writer: Writer) -> None:
        writer.metrics(5)
        writer.finish()
        assert run(collect(Hub(database, LOOKING), writer.job_id, 4)) == [5, 6]

    @ONE_DATABASE
    def test_replays_more_than_a_page_and_more_than_is_kept(self, database: Database, writer: Writer) -> None:
        writer.metrics(1300)
        last = writer.finish()
        assert last > 1000 + PAGE
        assert run(collect(Hub(database, LOOKING), writer.job_id)) == list(range(1, last + 1))

    @ONE_DATABASE
    def test_holds_few_of_large_events_at_a_time(self, database: Database, writer: Writer) -> None:
        # 64 kB is the most that one event of a log has; 200 of them would be 12 MB for every follower.
        for _ in range(40):
            writer.lines("x" * 60_000)
        last = writer.finish()

        async def scenario() -> list[list[Frame]]:
            return [frames async for frames in Hub(database, LOOKING).follow(writer.job_id, 0) if frames]

        groups = run(scenario())
        assert [found.seq for frames in groups for found in frames] == list(range(1, last + 1))
        assert max(sum(len(found.sse) for found in frames) for frames in groups) < 600_000

    def test_goes_on_live_when_rung(self, database: Database, writer: Writer) -> None:
        async def scenario() -> list[int]:
            hub = Hub(database, RUNG_ONLY)
            follower = asyncio.create_task(collect(hub, writer.job_id))
            await eventually(lambda: caught_up(hub, writer.job_id))
            for number in range(3):
                await asyncio.to_thread(writer.metrics, 2, 2 * number)
                hub.ring(writer.job_id)
            await asyncio.to_thread(writer.finish)
            hub.ring(writer.job_id)
            return await follower

        assert run(scenario()) == list(range(1, 8))

    @ONE_DATABASE
    def test_goes_on_live_without_any_ring(self, database: Database, writer: Writer) -> None:
        async def scenario() -> list[int]:
            hub = Hub(database, LOOKING)
            follower = asyncio.create_task(collect(hub, writer.job_id))
            await eventually(lambda: writer.job_id in hub._tails)
            await asyncio.to_thread(writer.metrics, 3)
            await asyncio.to_thread(writer.finish)
            return await follower

        assert run(scenario()) == [1, 2, 3, 4]

    @ONE_DATABASE
    def test_a_ring_from_another_thread_arrives(self, database: Database, writer: Writer) -> None:
        async def scenario() -> list[int]:
            hub = Hub(database, RUNG_ONLY)
            hub.start()
            follower = asyncio.create_task(collect(hub, writer.job_id))
            await eventually(lambda: caught_up(hub, writer.job_id))
            await asyncio.to_thread(writer.finish)
            await asyncio.to_thread(hub.ring_from_thread, writer.job_id)
            return await follower

        assert run(scenario()) == [1]

    @ONE_DATABASE
    def test_after_a_resubscription_everybody_looks(self, database: Database, writer: Writer) -> None:
        async def scenario() -> list[int]:
            hub = Hub(database, RUNG_ONLY)
            follower = asyncio.create_task(collect(hub, writer.job_id))
            await eventually(lambda: caught_up(hub, writer.job_id))
            await asyncio.to_thread(writer.finish)  # its ring was lost
            hub.ring(None)
            return await follower

        assert run(scenario()) == [1]

    @ONE_DATABASE
    def test_when_it_is_quiet_the_follower_gets_a_turn(self, database: Database, writer: Writer) -> None:
        async def scenario() -> list[list[Frame]]:
            hub = Hub(database, RUNG_ONLY)
            following = hub.follow(writer.job_id, 0)
            turns = [await anext(following), await anext(following)]
            await following.aclose()  # type: ignore[attr-defined] # it is a generator
            return turns

        assert run(scenario()) == [[], []]

    @ONE_DATABASE
    def test_a_stop_ends_every_follower(self, database: Database, writer: Writer) -> None:
        async def scenario() -> tuple[list[list[int]], int]:
            hub = Hub(database, Pace(poll_s=60.0, tick_s=60.0))
            hub.start()
            followers = [asyncio.create_task(collect(hub, writer.job_id)) for _ in range(3)]
            await eventually(lambda: hub.followers == 3)
            hub.stop_from_signal()
            return list(await asyncio.gather(*followers)), hub.followers

        assert run(scenario()) == ([[], [], []], 0)


class TestSharing:
    @ONE_DATABASE
    def test_many_followers_cost_one_read_for_each_ring(
        self, database: Database, writer: Writer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def scenario() -> tuple[list[list[int]], int]:
            hub = Hub(database, Pace(poll_s=60.0, tick_s=60.0))
            followers = [asyncio.create_task(collect(hub, writer.job_id)) for _ in range(50)]
            await eventually(lambda: hub.followers == 50 and caught_up(hub, writer.job_id))
            await eventually(lambda: not hub._tails[writer.job_id].wake.is_set())
            await asyncio.sleep(0)
            reads = counting(hub, monkeypatch)
            for number in range(5):
                position = hub._tails[writer.job_id].position
                await asyncio.to_thread(writer.metrics, 1, number)
                hub.ring(writer.job_id)
                await eventually(lambda before=position: hub._tails[writer.job_id].position > before)  # type: ignore[misc] # mypy has no type for a lambda's default
            await asyncio.to_thread(writer.finish)
            hub.ring(writer.job_id)
            return list(await asyncio.gather(*followers)), len(reads)

        seen, reads = run(scenario())
        assert seen == [[1, 2, 3, 4, 5, 6]] * 50
        # Each ring: one read that finds the event, one that finds no more. By 50 followers alone it would be 300.
        assert reads <= 12

    @ONE_DATABASE
    def test_one_that_comes_late_catches_up_by_itself_and_then_shares(self, database: Database, writer: Writer) -> None:
        async def scenario() -> tuple[list[int], list[int]]:
            hub = Hub(database, LOOKING)
            early = asyncio.create_task(collect(hub, writer.job_id))
            await asyncio.to_thread(writer.metrics, 400)
            await eventually(lambda: hub._tails[writer.job_id].position == 400)
            late = asyncio.create_task(collect(hub, writer.job_id))
            await asyncio.to_thread(writer.metrics, 300)
            await asyncio.to_thread(writer.finish)
            return await early, await late

        early, late = run(scenario())
        assert early == late == list(range(1, 702))

    @ONE_DATABASE
    def test_one_that_is_slow_misses_nothing_though_the_tail_forgot(
        self, database: Database, writer: Writer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(hub_module, "_KEPT_FRAMES", 10)

        async def scenario() -> tuple[list[int], list[int]]:
            hub = Hub(database, LOOKING)
            fast = asyncio.create_task(collect(hub, writer.job_id))
            slow: list[int] = []
            async for frames in hub.follow(writer.job_id, 0):
                slow += [found.seq for found in frames]
                if len(slow) < 5:
                    await asyncio.to_thread(writer.metrics, 60)
                    await eventually(lambda: hub._tails[writer.job_id].position >= 60)
                elif slow[-1] == 60:
                    await asyncio.to_thread(writer.finish)
            return await fast, slow

        fast, slow = run(scenario())
        assert fast == slow == list(range(1, 62))

    def test_nothing_is_left_when_the_last_follower_has_gone(self, database: Database, writer: Writer) -> None:
        async def scenario() -> tuple[int, bool]:
            hub = Hub(database, LOOKING)
            writer_task = asyncio.create_task(collect(hub, writer.job_id, until=3))
            await eventually(lambda: writer.job_id in hub._tails)
            await asyncio.to_thread(writer.metrics, 3)
            await writer_task
            await eventually(lambda: not hub._tails)
            readers = [task for task in asyncio.all_tasks() if task.get_name().startswith("tail ")]
            await asyncio.gather(*readers, return_exceptions=True)
            return hub.followers, bool([task for task in readers if not task.done()])

        assert run(scenario()) == (0, False)


class TestLostDatabase:
    @ONE_DATABASE
    def test_followers_wait_and_miss_nothing(
        self, database: Database, writer: Writer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def scenario() -> list[int]:
            hub = Hub(database, LOOKING)
            follower = asyncio.create_task(collect(hub, writer.job_id))
            await eventually(lambda: caught_up(hub, writer.job_id))
            page = hub._page
            failures = iter([True, True, False])

            def flaky(job_id: str, after: int) -> tuple[list[Frame], bool]:
                if next(failures, False):
                    raise DatabaseDown("The database does not answer; try again.")
                return page(job_id, after)

            monkeypatch.setattr(hub, "_page", flaky)
            await asyncio.to_thread(writer.finish)
            return await follower

        with structlog.testing.capture_logs() as logs:
            assert run(scenario()) == [1]
        assert [line["code"] for line in logs] == ["database_unavailable"] * 2


class TestTail:
    def event(self, seq: int, text: str = "{}", kind: str = "metric") -> Frame:
        return frame(JournalEvent(seq, 1, kind, START, text))

    def test_says_nothing_before_somebody_has_caught_up(self) -> None:
        assert Tail().after(0) is None

    def test_knows_what_is_newer_than_a_position_it_covers(self) -> None:
        tail = Tail()
        tail.start(3)
        tail.add([self.event(4), self.event(5)])
        assert tail.after(2) is None
        assert [found.seq for found in tail.after(3) or ()] == [4, 5]
        assert [found.seq for found in tail.after(4) or ()] == [5]
        assert tail.after(5) == []

    def test_forgets_the_oldest_by_size(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hub_module, "_KEPT_BYTES", 1000)
        tail = Tail()
        tail.start(0)
        tail.add([self.event(seq, '{"lines":"' + "x" * 300 + '"}', "log") for seq in (1, 2, 3, 4)])
        assert tail.after(0) is None
        assert [found.seq for found in tail.after(3) or ()] == [4]

    def test_a_single_event_is_kept_however_large(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(hub_module, "_KEPT_BYTES", 10)
        tail = Tail()
        tail.start(0)
        tail.add([self.event(1)])
        assert [found.seq for found in tail.after(0) or ()] == [1]


class TestFrame:
    def test_is_an_event_of_the_stream_with_the_stored_text_in_it(self) -> None:
        found = frame(JournalEvent(7, 2, "notice", START, '{"code":"x","message":"a\\nb"}'))
        assert found.sse == (
            b"id: 7\nevent: notice\n"
            b'data: {"seq":7,"at":"2026-01-31T12:00:00.000000Z","attempt":2,"kind":"notice",'
            b'"code":"x","message":"a\\nb"}\n\n'
        )

    @pytest.mark.parametrize(
        ("kind", "text", "last"),
        [
            ("state", '{"state":"succeeded"}', True),
            ("state", '{"state":"failed"}', True),
            ("state", '{"state":"cancelled"}', True),
            ("state", '{"state":"running"}', False),
            ("state", '{"state":"queued"}', False),
            ("metric", '{"state":"failed"}', False),
        ],
    )
    def test_only_a_final_state_is_the_last(self, kind: str, text: str, *, last: bool) -> None:
        assert frame(JournalEvent(1, 1, kind, START, text)).last is last
