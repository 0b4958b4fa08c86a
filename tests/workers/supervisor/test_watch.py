"""What the watch makes of a trainer that does not keep to the protocol, and of one that says much."""

import orjson
import pytest

from app.jobs.states import JobState
from tests.workers.eventually import eventually
from tests.workers.supervisor.bench import Bench, report
from workers.protocol import Artifact, Done, Notice


class TestMessages:
    def test_a_broken_line_costs_only_itself(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        run.sends_raw(b"this is no message\n")
        run.says(report(1, loss=0.5))
        bench.succeed(run)
        bench.wait(supervisor)

        assert len(bench.journal("metric")) == 1
        assert bench.state is JobState.SUCCEEDED

    def test_a_message_may_arrive_in_pieces(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        line = Notice(code="n", message="in pieces").model_dump_json().encode() + b"\n"
        for byte in line:
            run.sends_raw(bytes([byte]))
        bench.succeed(run)
        bench.wait(supervisor)
        assert [entry["message"] for entry in bench.journal("notice")] == ["in pieces"]

    def test_not_finite_values_are_words_in_the_journal(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        run.says(report(1, loss=float("nan"), norm=float("-inf")))
        bench.succeed(run)
        bench.wait(supervisor)

        points = bench.journal("metric")[0]["points"]
        assert (points["loss"]["value"], points["norm"]["value"]) == (["NaN"], ["-Infinity"])

    def test_best_metrics_are_found_inside_one_report(self, bench: Bench) -> None:
        supervisor, run = bench.run(report_interval_s=60.0)
        eventually(lambda: bench.state is JobState.RUNNING)
        run.says(report(1, val_loss=0.5), report(2, val_loss=0.1), report(3, val_loss=0.9))
        bench.leave_file(run, "model", b"x")
        run.says(Artifact(name="model", path="model", media_type="a/b", kind="model"), Done(metrics={}))
        run.end(code=0)
        bench.wait(supervisor)

        job = bench.job()
        assert (job.best_metrics, job.last_metrics) == ({"val_loss": 0.1}, {"val_loss": 0.9})
        assert job.progress is not None
        assert job.progress["fraction"] == pytest.approx(0.3)

    def test_reports_between_two_writes_are_one_row(self, bench: Bench) -> None:
        supervisor, run = bench.run(report_interval_s=60.0)
        eventually(lambda: bench.state is JobState.RUNNING)
        run.says(*(report(step, loss=1.0) for step in range(1, 51)))
        bench.succeed(run)
        bench.wait(supervisor)
        assert [len(entry["points"]["loss"]["value"]) for entry in bench.journal("metric")] == [50]


class TestOutput:
    def test_a_log_flood_is_cut_at_its_limit_and_says_so(self, bench: Bench) -> None:
        supervisor, run = bench.run(max_log_bytes=10_000)
        run.prints(b"0123456789abcdef\n" * 60_000)  # a megabyte
        bench.succeed(run)
        bench.wait(supervisor)

        assert sum(len(line) for line in bench.lines()) <= 10_000
        assert [entry["code"] for entry in bench.journal("notice")] == ["log_limit"]
        assert bench.state is JobState.SUCCEEDED

    def test_no_entry_is_over_64_kb(self, bench: Bench) -> None:
        supervisor, run = bench.run(max_log_bytes=2_000_000, report_interval_s=60.0)
        run.prints(b"x" * 300_000 + b"\n" + b"short\n" * 20_000)
        bench.succeed(run)
        bench.wait(supervisor)

        sizes = [len(orjson.dumps(entry)) for entry in bench.journal("log")]
        assert len(sizes) > 1
        assert max(sizes) <= 64_000

    def test_invalid_utf_8_is_replaced(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        run.prints(b"caf\xe9 \xf0\x9f\x92\xa1\n")
        bench.succeed(run)
        bench.wait(supervisor)
        assert bench.lines() == ["caf\ufffd \U0001f4a1"]

    def test_closed_output_does_not_spin_or_end_the_run(self, bench: Bench) -> None:
        supervisor, run = bench.run()
        run.closes_output()
        run.says(report(1, loss=0.5))
        eventually(lambda: bool(bench.journal("metric")))
        assert not bench.ended
        bench.succeed(run)
        bench.wait(supervisor)
        assert bench.state is JobState.SUCCEEDED
