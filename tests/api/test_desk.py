"""Requests that wait: woken by a ring for their own task, and by looking when nobody rings."""

import asyncio
from collections.abc import Callable

import pytest

from app.api.desk import Desk
from app.db import Database
from app.errors import NotFound
from app.ids import new_id
from app.predictions.models import ModelTask
from app.predictions.tasks import fail, task_error
from tests.api.client import ONE_DATABASE
from tests.fakes import FakeClock
from tests.predictions.asking import Asker, make_asker

pytestmark = ONE_DATABASE

NEVER_S = 600.0


@pytest.fixture
def asker(database: Database, clock: FakeClock) -> Asker:
    return make_asker(database, clock)


def end(asker: Asker) -> None:
    taken = asker.take()
    assert taken is not None
    with asker.database.write() as session:
        assert fail(session, taken, task_error("invalid_rows", "No."), asker.clock.now())


def wait(desk: Desk, asker: Asker, task_id: str, meanwhile: Callable[[], None], timeout_s: float = 20.0) -> ModelTask:
    """What a request gets, while something happens in another thread once it waits."""

    async def run() -> ModelTask:
        desk.start()
        waiting = asyncio.create_task(desk.wait(asker.project_id, task_id, timeout_s))
        await asyncio.sleep(0)  # it runs to its first look
        assert task_id in desk._waiting
        await asyncio.to_thread(meanwhile)
        return await waiting

    return asyncio.run(run())


class TestWait:
    def test_a_ring_wakes_it(self, asker: Asker) -> None:
        desk, task_id = Desk(asker.database, poll_s=NEVER_S), asker.ask()

        def answer() -> None:
            end(asker)
            desk.ring_from_thread(task_id)

        assert wait(desk, asker, task_id, answer).state == "failed"
        assert desk._waiting == {}

    def test_so_does_one_for_everybody_after_redis_was_away(self, asker: Asker) -> None:
        desk, task_id = Desk(asker.database, poll_s=NEVER_S), asker.ask()

        def answer() -> None:
            end(asker)
            desk.ring_from_thread(None)

        assert wait(desk, asker, task_id, answer).state == "failed"

    def test_without_a_ring_it_looks(self, asker: Asker) -> None:
        desk, task_id = Desk(asker.database, poll_s=0.01), asker.ask()
        assert wait(desk, asker, task_id, lambda: end(asker)).state == "failed"

    def test_rings_for_others_do_not_end_it(self, asker: Asker) -> None:
        desk, task_id = Desk(asker.database, poll_s=NEVER_S), asker.ask()
        task = wait(desk, asker, task_id, lambda: desk.ring_from_thread(new_id("tsk")), timeout_s=0.05)
        assert task.state == "queued"

    def test_one_that_is_gone_is_not_found(self, asker: Asker) -> None:
        desk = Desk(asker.database, poll_s=0.01)
        with pytest.raises(NotFound):
            asyncio.run(desk.wait(asker.project_id, new_id("tsk"), 1.0))
        assert desk._waiting == {}

    def test_a_ring_before_the_start_is_harmless(self, asker: Asker) -> None:
        Desk(asker.database).ring_from_thread(asker.ask())
