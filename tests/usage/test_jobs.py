"""What one job has used, from attempts with known sums."""

from datetime import timedelta
from typing import Any

import pytest

from app.jobs.models import Attempt, AttemptNode
from app.usage.jobs import usage_of
from app.usage.verdicts import WorkVerdict, sentence
from tests.fakes import START

NOW = START + timedelta(seconds=100)


def attempt(devices: int = 1, **values: Any) -> tuple[Attempt, list[AttemptNode]]:
    node = AttemptNode(devices=[{"id": f"GPU-{number}"} for number in range(devices)])
    return Attempt(**values), [node]


class TestUsageOf:
    def test_a_job_that_never_ran_used_nothing(self) -> None:
        assert usage_of([], NOW) == {
            "device_s": 0,
            "energy_j": None,
            "utilization": None,
            "verdict": None,
            "message": None,
        }

    def test_attempts_are_summed_and_the_mean_is_weighted_by_device_seconds(self) -> None:
        first = attempt(device_s=30.0, energy_j=1000.0, utilization=0.9, verdict="compute_bound", ended_at=NOW)
        second = attempt(device_s=10.0, energy_j=500.0, utilization=0.1, verdict="input_bound", ended_at=NOW)
        found = usage_of([first, second], NOW)
        assert (found["device_s"], found["energy_j"]) == (40.0, 1500.0)
        assert found["utilization"] == pytest.approx((0.9 * 30 + 0.1 * 10) / 40)
        assert (found["verdict"], found["message"]) == ("input_bound", sentence(WorkVerdict.INPUT_BOUND, 0.1))

    def test_a_last_attempt_that_was_too_short_to_judge_hides_no_verdict(self) -> None:
        long = attempt(device_s=3600.0, utilization=0.2, verdict="input_bound", ended_at=NOW)
        short = attempt(device_s=5.0, utilization=0.9, verdict="unknown", ended_at=NOW)
        found = usage_of([long, short], NOW)
        assert (found["verdict"], found["message"]) == ("input_bound", sentence(WorkVerdict.INPUT_BOUND, 0.2))
        assert usage_of([short], NOW)["verdict"] == "unknown"

    def test_one_that_runs_counts_until_now(self) -> None:
        assert usage_of([attempt(3, claimed_at=START)], NOW)["device_s"] == 300.0, "three devices for 100 s"

    def test_a_placement_that_nobody_took_costs_nothing(self) -> None:
        never = attempt(placed_at=START, ended_at=NOW)
        waits = attempt(placed_at=START)
        assert usage_of([never, waits], NOW)["device_s"] == 0.0

    def test_what_was_not_measured_does_not_count_as_zero(self) -> None:
        measured = attempt(device_s=10.0, energy_j=500.0, utilization=0.8, verdict="compute_bound", ended_at=NOW)
        lost = attempt(device_s=90.0, ended_at=NOW)
        found = usage_of([measured, lost], NOW)
        assert (found["energy_j"], found["utilization"], found["verdict"]) == (500.0, 0.8, "compute_bound")
