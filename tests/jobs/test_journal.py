"""The journal's promises: numbers without gaps, one writer generation at a time, text that is spliced."""

import threading

import orjson
import pytest

from app.db import Database
from app.jobs import journal
from app.jobs.journal import Entry
from tests.fakes import START, FakeClock
from tests.rows import add_job, add_project


@pytest.fixture
def job_id(database: Database) -> str:
    with database.write() as session:
        return add_job(session, add_project(session), state="running", attempt=1).id


def log_entry(text: str) -> Entry:
    return Entry("log", {"lines": [text]})


class TestAppend:
    def test_numbers_run_from_one_without_gaps(self, database: Database, job_id: str) -> None:
        with database.write() as session:
            assert journal.append(session, job_id, 1, [log_entry("a"), log_entry("b")], START) == 2
        with database.write() as session:
            assert journal.append(session, job_id, 1, [log_entry("c")], START) == 3
        with database.read() as session:
            assert [event.seq for event in journal.read(session, job_id, after=0)] == [1, 2, 3]
            assert journal.head(session, job_id) == (3, False)

    def test_a_rolled_back_report_leaves_no_gap(self, database: Database, job_id: str) -> None:
        def crash() -> None:
            with database.write() as session:
                journal.append(session, job_id, 1, [log_entry("lost")], START)
                raise RuntimeError("crash")

        with pytest.raises(RuntimeError, match="crash"):
            crash()
        with database.write() as session:
            assert journal.append(session, job_id, 1, [log_entry("kept")], START) == 1

    def test_an_older_attempt_is_fenced(self, database: Database, job_id: str) -> None:
        with database.write() as session:
            assert journal.append(session, job_id, 1, [log_entry("new")], START, raise_fence_to=2) == 1
        with database.write() as session:
            assert journal.append(session, job_id, 1, [log_entry("zombie")], START) is None
        with database.read() as session:
            assert [(event.seq, event.attempt) for event in journal.read(session, job_id, after=0)] == [(1, 2)]

    def test_eight_writers_share_one_sequence(self, database: Database, job_id: str) -> None:
        def write() -> None:
            for _ in range(20):
                with database.write() as session:
                    journal.append(session, job_id, 1, [log_entry("x"), log_entry("y")], START)

        threads = [threading.Thread(target=write) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with database.read() as session:
            numbers = [event.seq for event in journal.read(session, job_id, after=0)]
        assert numbers == list(range(1, 8 * 20 * 2 + 1))


class TestRead:
    def test_strictly_after_and_at_most_a_page(self, database: Database, job_id: str) -> None:
        with database.write() as session:
            journal.append(session, job_id, 1, [log_entry(str(i)) for i in range(10)], START)
        with database.read() as session:
            assert [event.seq for event in journal.read(session, job_id, after=4, limit=3)] == [5, 6, 7]
            assert journal.read(session, job_id, after=10) == []
            assert journal.read(session, job_id, after=0, kind="metric") == []

    def test_the_wire_form_is_json_with_the_numbers_in_front(
        self, database: Database, job_id: str, clock: FakeClock
    ) -> None:
        with database.write() as session:
            journal.append(session, job_id, 1, [Entry("state", {"state": "running"}), Entry("notice", {})], clock.now())
        with database.read() as session:
            full, empty = journal.read(session, job_id, after=0)
        assert orjson.loads(journal.event_json(full)) == {
            "seq": 1,
            "at": "2026-01-31T12:00:00.000000Z",
            "attempt": 1,
            "kind": "state",
            "state": "running",
        }
        assert orjson.loads(journal.event_json(empty))["kind"] == "notice"
