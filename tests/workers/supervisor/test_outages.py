"""The database away, slow to answer, or of another opinion: the trainer never waits, and nothing is lost or doubled."""

import signal

import pytest

from app.jobs.endings import Ending, end_attempt
from app.jobs.states import JobState
from tests.workers.eventually import eventually
from tests.workers.supervisor.bench import Bench, report

MIB = 1024 * 1024


class TestOutage:
    def test_reports_of_an_outage_are_all_there_afterwards(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        bench.database.down = True
        for step in range(1, 201):
            run.says(report(step, loss=1 / step))
        run.prints(b"said in the dark\n" * 100)
        eventually(lambda: bench.database.refused > 2)
        bench.database.down = False
        bench.succeed(run)
        bench.wait(supervisor)

        points = [entry["points"]["loss"] for entry in bench.journal("metric")]
        assert [step for point in points for step in point["step"]] == list(range(1, 201))
        assert bench.lines() == ["said in the dark"] * 100
        assert bench.state is JobState.SUCCEEDED

    def test_a_flood_during_an_outage_never_blocks_the_trainer(self, bench: Bench) -> None:
        supervisor, run = bench.run(max_log_bytes=100 * MIB)
        eventually(lambda: bench.state is JobState.RUNNING)
        bench.database.down = True
        run.says(report(1, loss=0.5))
        run.prints((b"x" * 99 + b"\n") * (20 * MIB // 100))  # returns only when all of it was drained
        bench.database.down = False
        bench.succeed(run)
        bench.wait(supervisor)

        dropped = [entry for entry in bench.journal("notice") if entry["code"] == "spool_dropped"]
        assert len(dropped) == 1
        assert dropped[0]["lines"] + len(bench.lines()) == 20 * MIB // 100
        assert [entry["points"]["loss"]["value"] for entry in bench.journal("metric")] == [[0.5]]

    def test_a_job_that_ran_entirely_during_an_outage_succeeds(self, bench: Bench) -> None:
        claim = bench.claim()
        bench.database.down = True
        supervisor, run = bench.run(claim)
        run.says(report(1, loss=0.5))
        bench.succeed(run)
        eventually(run.closed.is_set)
        eventually(lambda: bench.database.refused > 4)
        bench.database.down = False
        bench.wait(supervisor)

        assert bench.state is JobState.SUCCEEDED
        assert [entry["state"] for entry in bench.journal("state")] == ["starting", "running", "succeeded"]

    def test_a_worker_that_must_leave_gives_up_and_leaves_the_attempt_open(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        bench.database.down = True
        bench.succeed(run)
        eventually(run.closed.is_set)
        supervisor.abandon()
        bench.wait(supervisor)

        assert bench.state is JobState.RUNNING
        assert bench.attempt().ended_at is None

    def test_an_abandoned_run_is_killed(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        supervisor.abandon()
        bench.wait(supervisor)
        assert run.closed.is_set()


class TestLostAnswer:
    @pytest.mark.parametrize("answers", [1, 2, 3])
    def test_a_success_whose_commit_was_not_answered_keeps_its_files(self, bench: Bench, answers: int) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        bench.database.lose_answers = answers
        bench.succeed(run)
        bench.wait(supervisor)

        assert bench.state is JobState.SUCCEEDED
        assert bench.storage.list("artifacts") == [f"artifacts/{bench.scene.job_id}/1/model.safetensors"]

    def test_running_whose_commit_was_not_answered_is_no_fence(self, bench: Bench) -> None:
        claim = bench.claim()
        bench.database.lose_answers = 1
        supervisor, run = bench.run(claim)
        eventually(lambda: bench.database.lose_answers == 0)
        run.says(report(1, loss=0.5))
        eventually(lambda: bool(bench.journal("metric")))
        assert run.signals == []
        bench.succeed(run)
        bench.wait(supervisor)
        assert bench.state is JobState.SUCCEEDED


class TestFenced:
    def settle_elsewhere(self, bench: Bench) -> None:
        """What control does with an attempt whose lease ran out."""
        with bench.database.write() as session:
            end_attempt(session, bench.scene.job_id, 1, Ending(succeeded=False), bench.clock.now())

    def test_a_report_of_a_replaced_attempt_kills_the_run(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        self.settle_elsewhere(bench)
        bench.scene.place()
        run.says(report(1, loss=0.5))
        bench.wait(supervisor)

        assert run.signals == [signal.SIGKILL]
        assert bench.journal("metric") == []
        assert (bench.state, bench.job().attempt) == (JobState.STARTING, 2)

    def test_a_late_success_of_a_replaced_attempt_changes_nothing(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        self.settle_elsewhere(bench)
        bench.scene.place()
        before = bench.journal()
        bench.succeed(run)
        bench.wait(supervisor)

        assert (bench.state, bench.job().attempt) == (JobState.STARTING, 2)
        assert bench.journal() == before
        assert bench.storage.list("artifacts") == []


class TestRefusedReport:
    # Half of a surrogate pair is text that JSON cannot hold: orjson refuses to write it.
    POISON = "\ud800"

    def test_a_report_that_cannot_be_written_does_not_stop_those_behind_it(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        eventually(lambda: bench.state is JobState.RUNNING)
        supervisor._spool.notice("poison", self.POISON)
        eventually(lambda: bool(bench.journal("notice")))
        run.says(report(1, loss=0.5))
        bench.succeed(run)
        bench.wait(supervisor)

        assert [entry["code"] for entry in bench.journal("notice")] == ["report_lost"]
        assert [entry["points"]["loss"]["value"] for entry in bench.journal("metric")] == [[0.5]]
        assert bench.state is JobState.SUCCEEDED

    def test_a_success_is_written_without_the_reports_that_are_refused(self, bench: Bench) -> None:
        supervisor, run = bench.run(report_interval_s=60.0)
        eventually(lambda: bench.state is JobState.RUNNING)
        supervisor._spool.notice("poison", self.POISON)
        bench.succeed(run)
        bench.wait(supervisor)

        assert bench.state is JobState.SUCCEEDED
        assert bench.journal("notice") == []
