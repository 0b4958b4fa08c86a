"""Every pair of states, against the design's own table of legal moves (retold here, not imported)."""

from itertools import product

import pytest

from app.db import Database
from app.jobs import journal
from app.jobs.lifecycle import move
from app.jobs.models import Job
from app.jobs.states import FINAL, TRANSITIONS, JobState, StopRequest
from tests.fakes import FakeClock
from tests.rows import add_job, add_project

# Source: the table of job states in the design.
LEGAL = {
    ("queued", "starting"), ("queued", "paused"), ("queued", "failed"), ("queued", "cancelled"),
    ("starting", "running"), ("starting", "paused"), ("starting", "failed"), ("starting", "cancelled"),
    ("starting", "queued"),
    ("running", "paused"), ("running", "succeeded"), ("running", "failed"), ("running", "cancelled"),
    ("running", "queued"),
    ("paused", "failed"), ("paused", "cancelled"), ("paused", "queued"),
}  # fmt: skip


class TestTable:
    def test_it_is_the_design_s_table(self) -> None:
        present = {(source.value, target.value) for source, targets in TRANSITIONS.items() for target in targets}
        assert present == LEGAL

    def test_nothing_leaves_a_final_state(self) -> None:
        assert {state for state in JobState if not TRANSITIONS[state]} == FINAL

    def test_stop_requests_have_the_design_s_order(self) -> None:
        by_strength = sorted(StopRequest, key=lambda request: request.strength, reverse=True)
        assert [request.value for request in by_strength] == ["cancel", "pause", "preempt", "drain"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
class TestEveryPair:
    @pytest.mark.parametrize(("source", "target"), list(product(JobState, JobState)), ids=str)
    def test_moves_only_as_the_table_says(
        self, database: Database, clock: FakeClock, source: JobState, target: JobState
    ) -> None:
        with database.write() as session:
            job_id = add_job(session, add_project(session), state=source.value, attempt=3).id
        with database.write() as session:
            moved = move(session, job_id, target, attempt=3, now=clock.now())
        with database.read() as session:
            state = session.get_one(Job, job_id).state
            entries = journal.read(session, job_id, after=0)
        assert moved is ((source.value, target.value) in LEGAL)
        assert state == (target.value if moved else source.value)
        assert len(entries) == int(moved)


class TestMove:
    def test_another_attempt_is_stale_and_changes_nothing(self, database: Database, clock: FakeClock) -> None:
        with database.write() as session:
            job_id = add_job(session, add_project(session), state="running", attempt=2).id
        with database.write() as session:
            assert move(session, job_id, JobState.SUCCEEDED, attempt=1, now=clock.now()) is False
        with database.read() as session:
            assert session.get_one(Job, job_id).state == "running"
            assert journal.read(session, job_id, after=0) == []

    def test_a_final_state_closes_the_journal_for_good(self, database: Database, clock: FakeClock) -> None:
        with database.write() as session:
            job_id = add_job(session, add_project(session), state="running", attempt=1).id
        with database.write() as session:
            assert move(session, job_id, JobState.FAILED, attempt=1, now=clock.now(), facts={"cause": "diverged"})
        late = [journal.Entry("log", {"lines": ["too late"]})]
        with database.write() as session:
            assert journal.append(session, job_id, 1, late, clock.now()) is None
        with database.read() as session:
            assert [event.kind for event in journal.read(session, job_id, after=0)] == ["state"]
            assert session.get_one(Job, job_id).finished_at == clock.now()

    def test_a_narrower_source_is_respected(self, database: Database, clock: FakeClock) -> None:
        with database.write() as session:
            job_id = add_job(session, add_project(session), state="running", attempt=1).id
        with database.write() as session:
            only_starting = [JobState.STARTING]
            assert not move(session, job_id, JobState.FAILED, attempt=1, now=clock.now(), sources=only_starting)
