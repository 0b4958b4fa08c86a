"""Series and logs, read back from the journal."""

import math

import pytest

from app.db import Database
from app.jobs import journal
from app.jobs.journal import Entry
from app.jobs.logs import read_log
from app.jobs.metrics import series
from app.jobs.models import Job
from tests.fakes import START
from tests.rows import add_attempt, add_job, add_project


@pytest.fixture
def job_id(database: Database) -> str:
    with database.write() as session:
        return add_job(session, add_project(session), state="running", attempt=1).id


def metric(name: str, steps: list[int], values: list[float | str]) -> Entry:
    return Entry("metric", {"points": {name: {"step": steps, "epoch": [1] * len(steps), "value": values}}})


def write(database: Database, job_id: str, entries: list[Entry], attempt: int = 1, fence: int | None = None) -> None:
    with database.write() as session:
        assert journal.append(session, job_id, attempt, entries, START, raise_fence_to=fence) is not None


class TestSeries:
    def test_reports_are_joined_in_order(self, database: Database, job_id: str) -> None:
        write(database, job_id, [metric("loss", [1, 2], [3.0, 2.0]), metric("val_loss", [2], [9.0])])
        write(database, job_id, [metric("loss", [3], [1.0])])
        with database.read() as session:
            found = series(session, job_id, None, 100)
        assert list(found) == ["loss", "val_loss"]
        assert (found["loss"].step, found["loss"].value, found["loss"].total) == ([1, 2, 3], [3.0, 2.0, 1.0], 3)

    def test_only_what_was_asked_for(self, database: Database, job_id: str) -> None:
        write(database, job_id, [metric("loss", [1], [3.0]), metric("val_loss", [1], [9.0])])
        with database.read() as session:
            assert list(series(session, job_id, frozenset({"val_loss"}), 100)) == ["val_loss"]

    def test_an_attempt_that_started_anew_hides_all_earlier_points(self, database: Database, job_id: str) -> None:
        # Reports come by time, so the new attempt's steps fall between those of the old one.
        write(database, job_id, [metric("loss", [5, 15, 25], [9.0, 8.0, 7.0]), metric("val_loss", [25], [9.0])])
        write(database, job_id, [metric("loss", [10], [2.5])], attempt=1, fence=2)
        write(database, job_id, [metric("loss", [20], [1.5])], attempt=2)
        with database.read() as session:
            found = series(session, job_id, None, 100)
        assert list(found) == ["loss"], "the old attempt's other series go at the same moment"
        assert (found["loss"].step, found["loss"].value, found["loss"].attempt) == ([10, 20], [2.5, 1.5], [2, 2])

    def test_one_that_resumed_hides_what_was_beyond_that_step(self, database: Database, job_id: str) -> None:
        with database.write() as session:
            add_attempt(session, session.get_one(Job, job_id), number=2, resumed_from_step=10)
        write(database, job_id, [metric("loss", [10, 20, 30], [3.0, 2.0, 1.0])])
        write(database, job_id, [metric("loss", [20, 30], [2.5, 1.5])], attempt=1, fence=2)
        write(database, job_id, [metric("loss", [40], [1.2])], attempt=2)
        with database.read() as session:
            found = series(session, job_id, None, 100)["loss"]
        assert found.step == [10, 20, 30, 40]
        assert found.value == [3.0, 2.5, 1.5, 1.2]
        assert found.attempt == [1, 2, 2, 2]

    def test_thinning_keeps_the_extremes_and_says_how_many_there_were(self, database: Database, job_id: str) -> None:
        values: list[float | str] = [math.sin(i / 50) for i in range(2000)]
        values[777] = 50.0
        values[1234] = -50.0
        write(database, job_id, [metric("loss", list(range(2000)), values)])
        with database.read() as session:
            found = series(session, job_id, None, 100)["loss"]
        assert len(found.step) <= 100
        assert found.total == 2000
        assert {777, 1234, 0, 1999} <= set(found.step)

    def test_non_finite_values_stay_the_agreed_strings(self, database: Database, job_id: str) -> None:
        write(database, job_id, [metric("loss", [1, 2], ["NaN", "Infinity"])])
        with database.read() as session:
            assert series(session, job_id, None, 100)["loss"].value == ["NaN", "Infinity"]


class TestLogs:
    def test_all_lines_or_the_last_few(self, database: Database, job_id: str) -> None:
        write(database, job_id, [Entry("log", {"lines": ["a", "b"]}), metric("loss", [1], [1.0])])
        write(database, job_id, [Entry("log", {"lines": ["c", "d", "e"]})])
        with database.read() as session:
            assert read_log(session, job_id) == ["a", "b", "c", "d", "e"]
            assert read_log(session, job_id, tail=4) == ["b", "c", "d", "e"]
            assert read_log(session, job_id, tail=1) == ["e"]
            assert read_log(session, job_id, tail=100) == ["a", "b", "c", "d", "e"]
