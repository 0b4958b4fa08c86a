"""The leak police and the database fixture are relied on by every other test, so they are tested themselves."""

import os
import subprocess
import sys
import threading
from datetime import timedelta

import pytest
from sqlalchemy import func, select, text

from app.accounts.models import Project
from app.clock import Clock
from app.db import Database
from app.jobs.models import Job
from tests import leaks
from tests.fakes import START, FakeClock
from tests.leaks import leaks_since, snapshot
from tests.rows import add_attempt, add_dataset, add_job, add_key, add_project, add_worker
from tests.servers import PostgresServer


class TestLeakPolice:
    @pytest.fixture(autouse=True)
    def short_grace(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(leaks, "_GRACE_S", 0.0)

    def test_nothing_is_no_leak(self) -> None:
        assert leaks_since(snapshot()) == []

    def test_finds_a_thread(self) -> None:
        before, done = snapshot(), threading.Event()
        thread = threading.Thread(target=done.wait, name="left-over")
        thread.start()
        assert leaks_since(before) == ["thread left-over"]
        done.set()
        thread.join()
        assert leaks_since(before) == []

    def test_a_daemon_thread_is_allowed(self) -> None:
        before, done = snapshot(), threading.Event()
        thread = threading.Thread(target=done.wait, daemon=True)
        thread.start()
        assert leaks_since(before) == []
        done.set()
        thread.join()

    def test_finds_a_child_process(self) -> None:
        before = snapshot()
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
            assert [leak for leak in leaks_since(before) if leak.startswith(f"child process {child.pid}: ")]
        assert leaks_since(before) == []

    @pytest.mark.parametrize("action", ["set", "changed", "removed"])
    def test_finds_an_environment_variable(self, monkeypatch: pytest.MonkeyPatch, action: str) -> None:
        if action != "set":
            monkeypatch.setenv("LEFT_OVER", "before")
        before = snapshot()
        if action == "removed":
            monkeypatch.delenv("LEFT_OVER")
        else:
            monkeypatch.setenv("LEFT_OVER", "after")
        assert leaks_since(before) == ["environment variable LEFT_OVER"]
        monkeypatch.undo()
        assert "LEFT_OVER" not in os.environ


class TestDatabaseFixture:
    @pytest.mark.parametrize("turn", [1, 2])
    def test_is_migrated_and_empty_for_every_test(self, database: Database, turn: int) -> None:
        with database.write() as session:
            assert session.scalar(select(func.count()).select_from(Job)) == 0, f"turn {turn}"
            add_job(session, add_project(session))

    def test_every_row_of_the_factories_fits_the_schema(self, database: Database) -> None:
        with database.write() as session:
            project = add_project(session)
            add_key(session, project)
            add_worker(session, devices=2)
            job = add_job(session, project, dataset_id=add_dataset(session, project).id)
            add_attempt(session, job)
        with database.read() as session:
            assert session.scalars(select(Job.state)).all() == ["queued"]

    @pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
    def test_a_transaction_left_open_does_not_hold_up_the_next_test(
        self, database: Database, postgres: PostgresServer
    ) -> None:
        with database.write() as session:
            add_project(session)
        left_open = database.writer.connect()
        left_open.execute(text("LOCK TABLE projects"))
        postgres.empty("postgres")
        with database.read() as session:
            assert session.scalar(select(func.count()).select_from(Project)) == 0
        left_open.invalidate()
        left_open.close()

    def test_its_time_is_the_fake_clock(self, database: Database, clock: FakeClock) -> None:
        clock.advance(90)
        with database.read() as session:
            assert database.now(session) == START + timedelta(seconds=90)


class TestFakeClock:
    def test_stands_still_until_moved_and_moves_both_hands(self) -> None:
        fake = FakeClock()
        clock: Clock = fake
        before = clock.boot_ns()
        assert clock.now() == clock.now() == START
        assert fake.advance(1.5) == START + timedelta(seconds=1.5)
        assert clock.boot_ns() - before == 1_500_000_000
