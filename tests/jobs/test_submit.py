"""Accepting a job: all of it or nothing, and one job for one idempotency key."""

import threading
from dataclasses import replace

import pytest
from sqlalchemy.exc import IntegrityError

from app.db import Database
from app.errors import NotFound, TrainshedError
from app.ids import new_id
from app.jobs import journal
from app.jobs.models import Job, JobTag
from app.jobs.submit import (
    IdempotencyMismatch,
    Parent,
    QueueFull,
    Submission,
    SubmitResult,
    find_replay,
    submit,
    submit_all,
)
from app.spec import parse_job, resolve
from app.spec.job import InitializeFrom
from tests.fakes import FakeClock
from tests.jobs.placing import TABLE
from tests.rows import add_project


@pytest.fixture
def submission(database: Database, clock: FakeClock) -> Submission:
    with database.write() as session:
        project_id = add_project(session).id
    raw = b'{"framework": "torch", "model": "mlp", "data": "digits", "device_count": 1, "tags": {"team": "birds"}}'
    spec = parse_job(
        {"framework": "torch", "model": "mlp", "data": "digits", "device_count": 1, "tags": {"team": "birds"}}
    )
    effective = resolve(spec, TABLE, "cpu")
    return Submission(
        project_id=project_id,
        owner="ada",
        key_id="key_0",
        raw=raw,
        effective=effective,
        effective_json=effective.model_dump_json(),
        warnings=["careful"],
        dataset_id=None,
        idempotency=None,
        now=clock.now(),
    )


def send(database: Database, submission: Submission) -> SubmitResult:
    with database.write() as session:
        return submit(session, submission)


class TestSubmit:
    def test_it_writes_the_job_as_sent_and_as_understood(self, database: Database, submission: Submission) -> None:
        result = send(database, submission)
        with database.read() as session:
            job = session.get_one(Job, result.job_id)
            tags = {(tag.key, tag.value) for tag in session.query(JobTag)}
            events = journal.read(session, result.job_id, after=0)
        assert job.spec.encode() == submission.raw
        assert job.effective_spec == submission.effective.model_dump(mode="json")
        assert (job.state, job.device_type, job.warnings, job.attempt) == ("queued", "cpu", ["careful"], 0)
        assert tags == {("team", "birds")}
        assert [(event.seq, event.kind) for event in events] == [(1, "state")]

    def test_a_crash_before_the_commit_leaves_nothing(self, database: Database, submission: Submission) -> None:
        def crash() -> None:
            with database.write() as session:
                submit(session, submission)
                raise RuntimeError("crash")

        with pytest.raises(RuntimeError, match="crash"):
            crash()
        with database.read() as session:
            assert session.query(Job).count() == 0

    def test_a_full_queue_refuses(self, database: Database, submission: Submission) -> None:
        for _ in range(2):
            send(database, replace(submission, max_queued=2))
        with pytest.raises(QueueFull, match="2 jobs of this project wait already"):
            send(database, replace(submission, max_queued=2))


class TestSources:
    """What a job goes on from must still be there when its row is written: a deletion may have come first."""

    def test_a_retry_of_a_deleted_job_is_refused(self, database: Database, submission: Submission) -> None:
        gone = new_id("job")
        retry = replace(submission, parent=Parent(gone, "retry", 10))
        with pytest.raises(NotFound, match=gone):
            send(database, retry)

    def test_one_from_the_start_needs_nothing_of_it(self, database: Database, submission: Submission) -> None:
        assert send(database, replace(submission, parent=Parent(new_id("job"), "clone"))).job_id

    def test_the_weights_of_a_deleted_job_are_missed_and_others_in_the_group_are_not(
        self, database: Database, submission: Submission
    ) -> None:
        gone = new_id("job")
        source = InitializeFrom(job=gone, checkpoint="best")
        wants = replace(submission, effective=submission.effective.model_copy(update={"initialize_from": source}))
        with database.write() as session:
            refused, accepted = submit_all(session, [wants, submission])
        assert isinstance(refused, NotFound)
        assert isinstance(accepted, SubmitResult)


class TestGroup:
    """Jobs accepted together: what one adds counts for those behind it, and a refusal is its own."""

    def together(self, database: Database, *submissions: Submission) -> list[SubmitResult | TrainshedError]:
        with database.write() as session:
            return submit_all(session, submissions)

    def test_each_has_its_rows(self, database: Database, submission: Submission) -> None:
        results = self.together(database, submission, replace(submission, warnings=[]), submission)
        with database.read() as session:
            jobs = {job.id: job.warnings for job in session.query(Job)}
            heads = [journal.head(session, job_id) for job_id in jobs]
            tags = session.query(JobTag).count()
        assert [isinstance(result, SubmitResult) for result in results] == [True] * 3
        assert sorted(jobs.values()) == [[], ["careful"], ["careful"]]
        assert heads == [(1, False)] * 3
        assert tags == 3

    def test_a_key_that_comes_twice_makes_one_job(self, database: Database, submission: Submission) -> None:
        keyed = replace(submission, idempotency=("k-1", "a" * 64))
        other = replace(submission, idempotency=("k-1", "b" * 64))
        first, second, third = self.together(database, keyed, keyed, other)
        assert isinstance(first, SubmitResult)
        assert second == SubmitResult(first.job_id, replayed=True)
        assert isinstance(third, IdempotencyMismatch)
        with database.read() as session:
            assert session.query(Job).count() == 1

    def test_the_last_place_is_given_once(self, database: Database, submission: Submission) -> None:
        send(database, replace(submission, max_queued=3))
        results = self.together(database, *[replace(submission, max_queued=3)] * 4)
        assert [type(result) for result in results] == [SubmitResult, SubmitResult, QueueFull, QueueFull]
        with database.read() as session:
            assert session.query(Job).count() == 3


class TestIdempotency:
    def test_the_same_key_and_body_give_the_same_job(self, database: Database, submission: Submission) -> None:
        keyed = replace(submission, idempotency=("k-1", "a" * 64))
        first, second = send(database, keyed), send(database, keyed)
        assert (first.replayed, second.replayed) == (False, True)
        assert first.job_id == second.job_id
        with database.read() as session:
            assert session.query(Job).count() == 1

    def test_the_same_key_with_another_body_is_refused(self, database: Database, submission: Submission) -> None:
        send(database, replace(submission, idempotency=("k-1", "a" * 64)))
        with pytest.raises(IdempotencyMismatch, match="k-1"):
            send(database, replace(submission, idempotency=("k-1", "b" * 64)))

    def test_keys_belong_to_their_caller(self, database: Database, submission: Submission) -> None:
        keyed = replace(submission, idempotency=("k-1", "a" * 64))
        other = replace(keyed, key_id="key_1")
        assert send(database, keyed).job_id != send(database, other).job_id

    def test_twenty_parallel_requests_make_one_job(self, database: Database, submission: Submission) -> None:
        keyed = replace(submission, idempotency=("k-1", "a" * 64))
        found: list[str] = []

        def request() -> None:
            try:
                found.append(send(database, keyed).job_id)
            except IntegrityError:
                with database.read() as session:
                    found.append(str(find_replay(session, keyed.key_id, keyed.idempotency)))

        threads = [threading.Thread(target=request) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 20
        assert len(set(found)) == 1
        with database.read() as session:
            assert session.query(Job).count() == 1
