"""Chores beside the control loop: each when it is due, and none keeps another from being done."""

import threading
from datetime import timedelta

import pytest
import structlog
from sqlalchemy import func, select

from app import metering
from app.db import Database
from app.jobs.models import IdempotencyKey, Job
from app.jobs.retention import KEEP_KEYS
from app.jobs.states import JobState
from app.predictions.models import ModelTask
from app.predictions.upkeep import settle
from app.retention.housekeeping import DAY_S, HOUR_S, Chore, Housekeeping, chores
from app.retention.upkeep import Kept, Retention
from app.storage import Storage, open_storage
from tests.fakes import FakeClock
from tests.jobs.placing import make_scene
from tests.predictions.asking import DEADLINE_S, make_asker


class Watch:
    """A clock for intervals, that a test moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def storage(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    return open_storage(f"file://{tmp_path_factory.mktemp('storage')}")


class TestLook:
    def test_does_each_chore_at_once_and_then_when_it_is_due(self, watch: Watch) -> None:
        done: list[str] = []

        def note(name: str) -> int:
            done.append(name)
            return 0

        keeper = Housekeeping(
            {"often": Chore(10, lambda: note("often")), "rarely": Chore(25, lambda: note("rarely"))}, watch
        )
        for watch.now_s in (0, 9, 10, 20, 25, 30):
            keeper.look()
        assert done == ["often", "rarely", "often", "often", "rarely", "often"]

    def test_one_that_fails_is_tried_again_and_the_others_are_done(self, watch: Watch) -> None:
        faults = iter([OSError("storage is away"), None])
        done: list[str] = []

        def flaky() -> int:
            fault = next(faults)
            if fault is not None:
                raise fault
            done.append("flaky")
            return 1

        def other() -> int:
            done.append("other")
            return 0

        failures = metering.step_failures.labels("housekeeping")._value.get()
        keeper = Housekeeping({"flaky": Chore(10, flaky), "other": Chore(10, other)}, watch)
        with structlog.testing.capture_logs() as said:
            keeper.look()
            keeper.look()
        assert done == ["other", "flaky"]
        assert metering.step_failures.labels("housekeeping")._value.get() == failures + 1
        assert [(line["event"], line["chore"]) for line in said] == [("chore_failed", "flaky"), ("cleaned_up", "flaky")]

    def test_what_was_found_is_said_and_nothing_when_it_was_none(self, watch: Watch) -> None:
        with structlog.testing.capture_logs() as said:
            Housekeeping({"some": Chore(1, lambda: 3), "none": Chore(1, lambda: 0)}, watch).look()
        assert said == [{"event": "cleaned_up", "chore": "some", "count": 3, "log_level": "info"}]

    def test_after_a_stop_nothing_more_is_done(self, watch: Watch) -> None:
        def stop() -> int:
            keeper.stop()
            return 0

        keeper = Housekeeping({"first": Chore(1, stop), "second": Chore(1, lambda: 1)}, watch)
        with structlog.testing.capture_logs() as said:
            keeper.look()
        assert said == []

    def test_a_thread_of_its_own_does_it(self) -> None:
        names: list[str] = []
        done = threading.Event()

        def note() -> int:
            names.append(threading.current_thread().name)
            done.set()
            return 0

        keeper = Housekeeping({"x": Chore(60, note)})
        keeper.start()
        assert done.wait(10)
        keeper.stop()
        assert names == ["housekeeping"]


class TestChores:
    def test_idempotency_keys_and_answers_that_nobody_can_ask_for_any_more_go(
        self, database: Database, clock: FakeClock, storage: Storage, watch: Watch
    ) -> None:
        with database.write() as session:
            session.add(IdempotencyKey(principal="p", key="k", digest="d", resource_id="job_1", created_at=clock.now()))
        make_asker(database, clock).ask()
        clock.advance(DEADLINE_S)
        assert settle(database, 30) == 1
        clock.advance(KEEP_KEYS.total_seconds() + 1)
        Housekeeping(chores(database, Retention(database, storage, Kept())), watch).look()
        with database.read() as session:
            left = [
                session.execute(select(func.count()).select_from(table)).scalar()
                for table in (IdempotencyKey, ModelTask)
            ]
        assert left == [0, 0]

    def test_jobs_go_only_when_they_were_kept_long_enough(
        self, database: Database, clock: FakeClock, storage: Storage, watch: Watch
    ) -> None:
        ended = clock.now() - timedelta(days=3)
        scene = make_scene(database, clock, state=JobState.SUCCEEDED, finished_at=ended, created_at=ended)
        for days, left in ((None, 1), (4.0, 1)):
            Housekeeping(chores(database, Retention(database, storage, Kept(days))), watch).look()
            with database.read() as session:
                assert session.execute(select(func.count()).select_from(Job)).scalar() == left
        assert scene.state() is JobState.SUCCEEDED

    def test_the_whole_storage_is_listed_once_a_day_and_the_rest_is_done_each_hour(
        self, database: Database, storage: Storage
    ) -> None:
        paces = {name: chore.every_s for name, chore in chores(database, Retention(database, storage, Kept())).items()}
        assert paces.pop("orphaned_files") == DAY_S
        assert set(paces.values()) == {HOUR_S}
