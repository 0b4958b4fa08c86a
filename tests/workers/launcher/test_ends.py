"""How an attempt's end is reported: exactly, and with what it wrote and used."""

import signal

import pytest

from tests.workers.launcher.conftest import Start
from workers.launch import Ended, StartedEvent


class TestExitStatus:
    @pytest.mark.parametrize("code", [0, 3, 255])
    def test_code_is_reported(self, start: Start, code: int) -> None:
        end = start("exit_with_seed", seed=code).ended()

        assert (end.code, end.signal, end.survivors, end.deadline) == (code, None, False, False)

    def test_signal_is_reported_apart_from_codes(self, start: Start) -> None:
        end = start("end_by_term").ended()

        assert (end.code, end.signal) == (None, signal.SIGTERM)

    def test_system_exit_keeps_its_code(self, start: Start) -> None:
        assert start("raise_system_exit", seed=7).ended().code == 7

    def test_error_ends_with_1_and_a_traceback_in_the_log(self, start: Start) -> None:
        attempt = start("raise_error")

        assert attempt.ended().code == 1
        assert b"RuntimeError: this entry point is broken" in attempt.all_output()

    def test_unknown_entry_point_explains_itself_in_the_log(self, start: Start) -> None:
        attempt = start("no_such_function")

        assert attempt.ended().code == 1
        assert b"no_such_function" in attempt.all_output()

    def test_start_comes_first_and_the_end_last(self, start: Start) -> None:
        attempt = start("exit_with_seed")
        attempt.ended()

        assert [type(event) for event in attempt.events] == [StartedEvent, Ended]
        assert attempt.run.events() == []

    def test_started_names_the_session_that_the_trainer_leads(self, start: Start) -> None:
        attempt = start("describe")
        said, started = attempt.line(), attempt.started()

        assert started.pid == started.pgid == said["pid"] == said["session"] == said["group"]


class TestOutput:
    def test_all_of_both_streams_arrives(self, start: Start) -> None:
        attempt = start("write_much")
        output = attempt.all_output()

        assert (output.count(b"o"), output.count(b"e"), len(output)) == (50_000, 50_000, 100_000)
        assert attempt.ended().code == 0


class TestUsage:
    def test_peak_memory_counts_what_the_trainer_filled(self, start: Start) -> None:
        size = 64 * 1024 * 1024
        small, large = (
            start("exit_with_seed").ended(),
            start("fill_memory", device="GPU-1", job="job_2", seed=size).ended(),
        )

        assert large.max_rss_bytes >= size
        assert 0 < small.max_rss_bytes < size


class TestSideBySide:
    def test_each_of_four_attempts_gets_its_own_end(self, start: Start) -> None:
        attempts = [start("exit_with_seed", device=f"GPU-{n}", job=f"job_{n}", seed=n) for n in range(4)]

        assert [attempt.ended().code for attempt in attempts] == [0, 1, 2, 3]
