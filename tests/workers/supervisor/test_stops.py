"""Stopping a run: message, TERM, KILL, each at its time; and what the stop makes of the job."""

import signal
from dataclasses import replace

import pytest

from app.jobs.states import JobState, StopRequest
from app.jobs.stops import request_cancel
from tests.fakes import FakeClock
from tests.workers.eventually import eventually
from tests.workers.fake_launcher import FakeLauncher, FakeRun
from tests.workers.supervisor.bench import Bench
from workers.protocol import Done
from workers.stopping import StopReason
from workers.supervisor import Supervisor


@pytest.fixture
def stubborn(bench: Bench, clock: FakeClock) -> Bench:
    """A bench whose trainers ignore TERM."""
    bench.launcher = FakeLauncher(clock, ignores=frozenset({signal.SIGTERM}))
    bench.equipment = replace(bench.equipment, launcher=bench.launcher)
    return bench


def cancel(bench: Bench) -> None:
    with bench.database.write() as session:
        request_cancel(session, bench.scene.project_id, bench.scene.job_id, bench.clock.now())


def pass_time(bench: Bench, supervisor: Supervisor, seconds: float) -> None:
    """Move the clock, and make the supervisor look at it."""
    bench.clock.advance(seconds)
    supervisor.extend(0)


def stop(bench: Bench, supervisor: Supervisor, run: FakeRun, reason: StopReason = StopReason.CANCEL) -> None:
    if reason is StopReason.CANCEL:
        cancel(bench)
    supervisor.stop(reason)
    eventually(lambda: bool(run.heard), "the stop message")


class TestCancel:
    def test_a_trainer_that_leaves_at_its_safe_point_is_never_signalled(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        stop(bench, supervisor, run)
        assert run.heard[0].reason == "cancel"
        run.says(Done(metrics={}, stopped="stop"))
        run.end(code=0)
        bench.wait(supervisor)

        assert run.signals == []
        assert bench.state is JobState.CANCELLED

    def test_one_that_does_not_hear_gets_term_after_a_second(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        stop(bench, supervisor, run)
        assert run.signals == []
        pass_time(bench, supervisor, 1)
        bench.wait(supervisor)

        assert run.signals == [signal.SIGTERM]
        assert bench.state is JobState.CANCELLED
        assert bench.attempt().signal == signal.SIGTERM

    def test_one_that_ignores_term_is_killed_when_the_grace_is_over(self, stubborn: Bench) -> None:
        supervisor, run = stubborn.run()
        stop(stubborn, supervisor, run)
        pass_time(stubborn, supervisor, 1)
        eventually(lambda: run.signals == [signal.SIGTERM])
        pass_time(stubborn, supervisor, 8.9)
        pass_time(stubborn, supervisor, 0.2)
        stubborn.wait(supervisor)

        assert run.signals == [signal.SIGTERM, signal.SIGKILL]
        assert stubborn.state is JobState.CANCELLED

    def test_it_is_never_sent_twice(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        for _ in range(5):
            supervisor.stop(StopReason.CANCEL)
        eventually(lambda: bool(run.heard))
        pass_time(bench, supervisor, 1)
        bench.wait(supervisor)
        assert (len(run.heard), run.signals) == (1, [signal.SIGTERM])

    def test_a_job_that_had_just_finished_is_cancelled_all_the_same(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        cancel(bench)
        bench.succeed(run)
        bench.wait(supervisor)

        assert bench.state is JobState.CANCELLED
        assert bench.storage.list("artifacts") == []

    def test_a_claim_of_a_cancelled_job_starts_nothing(self, bench: Bench) -> None:
        claim = bench.claim()
        cancel(bench)
        bench.wait(bench.begin(type(claim)(**{**vars(claim), "stop": StopRequest.CANCEL})))

        assert bench.launcher.idle
        assert bench.state is JobState.CANCELLED


class TestOtherReasons:
    def test_a_drained_job_goes_back_to_the_queue_and_spends_nothing(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        stop(bench, supervisor, run, StopReason.DRAIN)
        run.says(Done(metrics={}, stopped="stop"))
        run.end(code=0)
        bench.wait(supervisor)

        job = bench.job()
        assert (job.state, job.failures, job.losses) == ("queued", 0, 0)
        assert bench.attempt().cause == "drained"

    def test_one_that_finished_during_the_drain_has_succeeded(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        stop(bench, supervisor, run, StopReason.DRAIN)
        bench.succeed(run)
        bench.wait(supervisor)
        assert bench.state is JobState.SUCCEEDED

    def test_a_cancel_during_a_drain_wins(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        stop(bench, supervisor, run, StopReason.DRAIN)
        cancel(bench)
        supervisor.stop(StopReason.CANCEL)
        pass_time(bench, supervisor, 1)
        bench.wait(supervisor)
        assert bench.state is JobState.CANCELLED

    def test_the_time_limit_stops_a_run_in_the_same_steps(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        pass_time(bench, supervisor, 3601)
        eventually(lambda: bool(run.heard))
        pass_time(bench, supervisor, 1)
        bench.wait(supervisor)

        assert run.signals == [signal.SIGTERM]
        assert (bench.job().state, bench.job().cause) == ("failed", "timed_out")

    def test_time_used_by_earlier_attempts_counts(self, bench: Bench) -> None:
        claim = bench.claim()
        supervisor, run = bench.run(type(claim)(**{**vars(claim), "remaining_s": 0.0}))
        eventually(lambda: bool(run.heard))
        assert run.heard[0].reason == "timed_out"
        pass_time(bench, supervisor, 1)
        bench.wait(supervisor)

    def test_a_fenced_run_is_killed_at_once_without_a_message(self, stubborn: Bench) -> None:
        supervisor, run = stubborn.run()
        eventually(lambda: stubborn.state is JobState.RUNNING)
        supervisor.stop(StopReason.FENCED)
        stubborn.wait(supervisor)

        assert (run.signals, run.heard) == ([signal.SIGKILL], [])
        assert stubborn.attempt().cause == "worker_lost"


class TestDeadline:
    def test_each_renewal_is_passed_on_and_an_older_one_is_not(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        first = run.request.until_boot_ns
        supervisor.extend(first + 5)
        eventually(lambda: run.until[-1:] == [first + 5])
        supervisor.extend(first + 1)
        supervisor.extend(first + 9)
        eventually(lambda: run.until[-1:] == [first + 9])

        assert run.until == sorted(run.until)
        bench.succeed(run)
        bench.wait(supervisor)

    def test_a_run_whose_launcher_let_the_lease_run_out_is_a_loss(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        run.end(signal=signal.SIGKILL, deadline=True)
        bench.wait(supervisor)

        assert bench.state is JobState.QUEUED
        assert bench.attempt().cause == "worker_lost"

    def test_orders_after_the_end_are_harmless(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        bench.succeed(run)
        bench.wait(supervisor)
        supervisor.extend(10**18)
        supervisor.stop(StopReason.FENCED)
        supervisor.abandon()
        assert bench.state is JobState.SUCCEEDED
