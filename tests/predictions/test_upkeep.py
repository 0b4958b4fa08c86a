"""What time does to tasks: deadlines, lost workers, and forgetting."""

import pytest

from app.db import Database
from app.fleet.models import Worker
from app.predictions import upkeep
from app.predictions.models import ModelTask
from app.predictions.states import TaskKind
from app.predictions.tasks import Taken, export_request, succeed
from tests.predictions.asking import DEADLINE_S, Asker

OFFLINE_S = 15.0
DAY_S = 24 * 3600.0


def settle(asker: Asker) -> int:
    return upkeep.settle(asker.database, OFFLINE_S)


def beat(asker: Asker, **changes: object) -> None:
    """The worker is heard; `changes` sets columns of its row."""
    with asker.database.write() as session:
        worker = session.get_one(Worker, asker.worker_id)
        for name, value in {"heartbeat_at": asker.clock.now(), **changes}.items():
            setattr(worker, name, value)


class TestDeadline:
    def test_what_nobody_answered_expires(self, asker: Asker) -> None:
        waiting = asker.ask()
        assert settle(asker) == 0
        asker.clock.advance(DEADLINE_S)
        assert settle(asker) == 1
        task = asker.task(waiting)
        assert (task.state, task.request, task.finished_at) == ("expired", "{}", asker.clock.now())
        assert task.error is not None
        assert task.error["code"] == "task_expired"

    def test_so_does_what_takes_too_long_and_its_late_answer_is_dropped(self, asker: Asker) -> None:
        taken = asker.taken()
        asker.clock.advance(DEADLINE_S)
        beat(asker)
        assert settle(asker) == 1
        with asker.database.write() as session:
            assert not succeed(session, taken, "{}", asker.clock.now())
        assert asker.task(taken.id).state == "expired"

    def test_what_is_over_stays_as_it_is(self, asker: Asker) -> None:
        taken = asker.taken()
        with asker.database.write() as session:
            assert succeed(session, taken, "{}", asker.clock.now())
        asker.clock.advance(DEADLINE_S)
        assert settle(asker) == 0
        assert asker.task(taken.id).state == "succeeded"


class TestLostWorker:
    def lost(self, asker: Asker, how: str) -> None:
        if how == "silent":
            asker.clock.advance(OFFLINE_S + 1)
        elif how == "restarted":
            beat(asker, instance="instance-2")
        elif how == "left":
            beat(asker, state="offline")

    @pytest.mark.parametrize("how", ["silent", "restarted", "left"])
    def test_its_task_waits_again(self, asker: Asker, how: str) -> None:
        taken = asker.taken()
        self.lost(asker, how)
        assert settle(asker) == 1
        task = asker.task(taken.id)
        assert (task.state, task.worker_id, task.claim, task.request) == ("queued", None, 1, taken.request)

    @pytest.mark.parametrize("how", ["silent", "restarted", "left"])
    def test_the_second_time_it_fails(self, asker: Asker, how: str) -> None:
        taken = asker.taken()
        self.lost(asker, how)
        settle(asker)
        beat(asker, state="online", instance="instance-1")
        assert asker.take() is not None
        self.lost(asker, how)
        assert settle(asker) == 1
        task = asker.task(taken.id)
        assert task.state == "failed"
        assert task.error is not None
        assert task.error["code"] == "task_lost"

    def test_a_worker_that_is_heard_keeps_it(self, asker: Asker) -> None:
        taken = asker.taken()
        asker.clock.advance(OFFLINE_S + 1)
        beat(asker)
        assert settle(asker) == 0
        assert asker.task(taken.id).state == "running"

    def test_one_that_comes_back_after_its_task_was_put_back_writes_nothing(self, asker: Asker) -> None:
        taken = asker.taken()
        asker.clock.advance(OFFLINE_S + 1)
        settle(asker)
        beat(asker)
        with asker.database.write() as session:
            assert not succeed(session, taken, "{}", asker.clock.now())


class TestForget:
    def ended(self, asker: Asker) -> Taken:
        taken = asker.taken()
        with asker.database.write() as session:
            assert succeed(session, taken, "{}", asker.clock.now())
        return taken

    def test_a_day_after_its_end_a_task_is_gone(self, asker: Asker) -> None:
        old = self.ended(asker)
        asker.clock.advance(DAY_S)
        new = self.ended(asker)
        assert upkeep.forget(asker.database, asker.clock.now()) == 0
        asker.clock.advance(1)
        assert upkeep.forget(asker.database, asker.clock.now()) == 1
        with asker.database.read() as session:
            assert session.get(ModelTask, old.id) is None
            assert session.get(ModelTask, new.id) is not None

    def test_what_is_open_is_never_forgotten(self, asker: Asker) -> None:
        asker.ask(TaskKind.EXPORT, export_request("onnx"))
        asker.clock.advance(10 * DAY_S)
        assert upkeep.forget(asker.database, asker.clock.now()) == 0

    def test_many_go_in_short_transactions(self, asker: Asker) -> None:
        for _ in range(5):
            self.ended(asker)
        asker.clock.advance(DAY_S + 1)
        assert upkeep.forget(asker.database, asker.clock.now(), at_once=2) == 5


class TestIdle:
    def test_nothing_to_settle_takes_no_write(self, database: Database, asker: Asker) -> None:
        asker.ask()
        with database.write():  # on SQLite a second writer would now wait for this one to end
            assert settle(asker) == 0
