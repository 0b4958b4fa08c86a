"""Several torch ranks train as one device does, and a rank that fails ends the job with its name.

The jobs run in processes forked from one that has imported torch, since ranks are forked before anything is computed;
that all processes of a job have gone is part of every answer.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

ROOT = Path(__file__).parents[3]

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """Give a function that runs jobs by name at the same time, and returns what became of each."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.workers.backends.torch_jobs"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None

    def ask(*names: str) -> list[dict[str, Any]]:
        stdin.write(json.dumps(names) + "\n")
        stdin.flush()
        found: list[dict[str, Any]] = json.loads(stdout.readline())
        return found

    with process:
        yield ask
        stdin.close()
        assert process.wait(60) == 0


def result(run: Run, name: str) -> Any:
    (outcome,) = run(name)
    assert outcome["status"] == 0, outcome["errors"]
    return outcome["result"]


class TestCurves:
    """With batch norm, dropout, clipping and class weights, and a last batch that does not divide."""

    @pytest.mark.parametrize("world", [2, 3, 4])
    def test_float64_agrees_with_one_device(self, run: Run, world: int) -> None:
        # Of four ranks the last batch of 3 rows leaves one without any.
        one, several = result(run, "pictures 1"), result(run, f"pictures {world}")

        assert_allclose(several, one, rtol=1e-9, atol=1e-9)

    def test_a_last_batch_of_one_row_leaves_a_rank_without_and_changes_nothing(self, run: Run) -> None:
        # Case C32: 33 rows, batches of 16, two devices.
        one, two = result(run, "sequences 1"), result(run, "sequences 2")

        assert np.isfinite(two).all()
        assert_allclose(two, one, rtol=1e-9, atol=1e-9)

    def test_float32_agrees_too(self, run: Run) -> None:
        assert_allclose(result(run, "float32 2"), result(run, "float32 1"), rtol=1e-3, atol=1e-3)

    def test_float16_stays_finite(self, run: Run) -> None:
        assert np.isfinite(result(run, "float16 2")).all()

    def test_the_same_job_gives_the_same_bits(self, run: Run) -> None:
        assert result(run, "again") is True

    def test_where_an_epoch_is_cut_changes_no_bit(self, run: Run) -> None:
        assert result(run, "cut") is True

    def test_a_restored_session_goes_on_bit_by_bit(self, run: Run) -> None:
        assert result(run, "goes on") is True


class TestOutputs:
    def test_every_row_comes_once_and_in_order(self, run: Run) -> None:
        whole, pieces, none = result(run, "looked")

        assert len(whole) == 11 * 3
        assert_allclose(pieces, whole, rtol=1e-12)
        assert none == [0, 3]


class TestProcesses:
    def test_ranks_share_the_threads(self, run: Run) -> None:
        # Four threads are two for each of two ranks; one is one each, since none computes without.
        assert result(run, "threads") == [2, 2, 1, 1]

    def test_nothing_listens_outside_of_the_host(self, run: Run) -> None:
        # Case C33.
        assert set(result(run, "listening")) <= {"127.0.0.1", "::1"}

    def test_two_jobs_at_once_do_not_meet(self, run: Run) -> None:
        # Case C33: the port that torch's launcher likes is taken, and two jobs start at the same moment.
        outcomes = run("beside another", "beside another")

        assert [outcome["status"] for outcome in outcomes] == [0, 0]
        assert outcomes[0]["result"] == outcomes[1]["result"]

    def test_a_request_to_end_is_rank_0s_to_follow(self, run: Run) -> None:
        assert_allclose(result(run, "terminated"), result(run, "pictures 1"), rtol=1e-9, atol=1e-9)

    def test_ranks_die_with_rank_0(self, run: Run) -> None:
        (outcome,) = run("orphaned")

        assert outcome["status"] == -9


class TestFaults:
    """Case C34: the error names the rank, and nobody waits for ever."""

    def test_a_killed_rank_is_named_with_its_signal(self, run: Run) -> None:
        found = result(run, "killed")

        assert found["message"].startswith("Rank 1 of 2 was ended by signal 9 (SIGKILL)")
        assert (found["error"], found["cause"]) == ("RankFailed", "trainer_killed")
        assert found["left"] == []
        assert found["in_time"]

    def test_a_rank_that_finds_no_shared_memory_says_so(self, run: Run) -> None:
        # Case C31.
        found = result(run, "without shared memory")

        assert found["message"].startswith("Rank 1 of 2 was ended by signal 7 (SIGBUS)")
        assert (found["error"], found["cause"], found["left"]) == ("RankFailed", "shared_memory", [])

    def test_of_several_ranks_the_killed_one_is_named(self, run: Run) -> None:
        assert result(run, "second of three killed")["message"].startswith("Rank 2 of 3 was ended by signal 9")

    def test_a_rank_killed_between_two_calls_is_named_at_the_next(self, run: Run) -> None:
        found = result(run, "killed between runs")

        assert found["message"].startswith("Rank 1 of 2 was ended by signal 9")
        assert found["left"] == []

    def test_a_frozen_rank_is_ended_and_named(self, run: Run) -> None:
        found = result(run, "frozen")

        sentence = "Rank 2 of 3 was frozen, and was ended for it. The job cannot go on without it."
        assert (found["message"], found["cause"]) == (sentence, "trainer_killed")
        assert found["left"] == []
        assert found["in_time"]

    def test_a_rank_that_is_thawed_in_time_goes_on(self, run: Run) -> None:
        assert result(run, "frozen for a moment")

    def test_an_error_of_a_rank_comes_with_its_traceback(self, run: Run) -> None:
        found = result(run, "raising")

        assert found["message"] == "Rank 1 of 2 failed: ValueError: there is something rotten"
        assert "in rank 1" in found["behind"]
        assert "raise_error" in found["behind"]
        assert (found["error"], found["cause"], found["left"]) == ("RankFailed", "user_code", [])

    def test_the_log_has_it_too(self, run: Run) -> None:
        (outcome,) = run("raising")

        assert outcome["errors"].startswith("Rank 1 failed.\nTraceback")
        assert outcome["errors"].count("there is something rotten") == 2  # in the code, and as the error

    def test_memory_that_a_rank_ran_out_of_is_the_jobs(self, run: Run) -> None:
        found = result(run, "out of memory")

        assert found["cause"] == "host_out_of_memory"
        assert "MemoryError: no more" in found["message"]

    def test_an_error_of_rank_0_stays_its_own(self, run: Run) -> None:
        found = result(run, "rank 0 raising")

        assert (found["error"], found["message"]) == ("ValueError", "there is something rotten")
        assert found["left"] == []

    def test_a_rank_that_cannot_build_its_model_is_named(self, run: Run) -> None:
        found = result(run, "failing to build")

        assert found["message"] == "Rank 1 of 2 failed: ValueError: no such model"
        assert (found["left"], found["folders"]) == ([], 0)

    def test_a_rank_that_does_not_come_to_the_meeting_does_not_outlive_it(self, run: Run) -> None:
        found = result(run, "missing at the meeting")

        assert found["message"] == "timed out"
        assert (found["left"], found["folders"]) == ([], 0)

    def test_rank_0_in_a_collective_without_end_is_ended_with_a_line_in_the_log(self, run: Run) -> None:
        (outcome,) = run("stuck")

        assert outcome["status"] == -9
        said = "Rank 1 of 2 was ended by signal 9 (SIGKILL), and rank 0 waits for it in vain: leaving.\n"
        assert outcome["errors"] == said
