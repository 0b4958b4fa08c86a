"""When a trial has passed, and how it is shown."""

import io
from typing import Any

import pytest
from rich.console import Console

from app.cli.demo.outcome import Outcome, outcomes_table
from app.cli.demo.plan import Trial
from tests.cli.fake_server import job

TRIAL = Trial({"name": "digits torch", "framework": "torch"}, "test_accuracy", 0.95)
ATTEMPT = {
    "devices": [{"name": "CPU slot, 2 threads"}],
    "placed_at": "2026-01-31T12:00:01.000000Z",
    "ended_at": "2026-01-31T12:00:04.500000Z",
}


def outcome(value: object = 0.96, state: str = "succeeded", **members: Any) -> Outcome:
    last = None if value is None else {"test_accuracy": value, "samples_per_s": 5000.0}
    metrics = {"last": last, "best": None}
    return Outcome(TRIAL, job(state=state, metrics=metrics, attempts=[ATTEMPT], **members), [])


class TestPassed:
    @pytest.mark.parametrize(
        ("value", "state", "passed"),
        [
            (0.96, "succeeded", True),
            (0.95, "succeeded", True),
            (0.9499, "succeeded", False),
            (0.99, "failed", False),
            (0.99, "running", False),
            ("NaN", "succeeded", False),
            (None, "succeeded", False),
        ],
    )
    def test_only_a_success_that_clears_the_bar(self, value: object, state: str, *, passed: bool) -> None:
        assert outcome(value, state).passed is passed

    def test_an_end_is_not_a_success(self) -> None:
        assert [outcome(state=state).ended for state in ("queued", "running", "failed", "cancelled")] == [
            False,
            False,
            True,
            True,
        ]


class TestFacts:
    def test_wall_time_runs_from_the_placement_to_the_end(self) -> None:
        assert outcome().wall_s == 3.5

    @pytest.mark.parametrize("attempts", [[], [{**ATTEMPT, "ended_at": None}]])
    def test_it_is_not_known_before_that(self, attempts: list[Any]) -> None:
        assert Outcome(TRIAL, job(attempts=attempts)).wall_s is None

    def test_json_has_all_that_the_table_has(self) -> None:
        content = outcome().as_json()
        assert content["value"] == 0.96
        assert content["passed"] is True
        assert content["device"] == "CPU slot, 2 threads"
        assert (content["wall_s"], content["samples_per_s"], content["bar"]) == (3.5, 5000.0, 0.95)


class TestTable:
    def shown(self, *outcomes: Outcome) -> str:
        out = io.StringIO()
        Console(file=out, width=200).print(outcomes_table(outcomes))
        return out.getvalue()

    def test_a_mark_says_whether_the_bar_was_cleared(self) -> None:
        assert "0.96 ✓" in self.shown(outcome(0.96))
        assert "0.9 ✗" in self.shown(outcome(0.9))

    def test_what_still_runs_has_no_mark_and_no_time(self) -> None:
        text = self.shown(Outcome(TRIAL, job(state="running")))
        assert "✓" not in text
        assert "✗" not in text

    def test_a_resumed_job_says_from_which_step(self) -> None:
        again = {**ATTEMPT, "resumed_from_step": 900}
        assert "step 900" in self.shown(Outcome(TRIAL, job(state="succeeded", attempts=[ATTEMPT, again])))


class TestKilled:
    KILLED = Trial({"name": "killed torch"}, "test_accuracy", 0.95, kill=True)

    def after(self, *attempts: dict[str, Any]) -> Outcome:
        metrics = {"last": {"test_accuracy": 0.97}, "best": None}
        return Outcome(self.KILLED, job(state="succeeded", metrics=metrics, attempts=list(attempts)))

    def test_it_has_passed_only_when_the_second_attempt_went_on(self) -> None:
        assert self.after(ATTEMPT, {**ATTEMPT, "resumed_from_step": 900}).passed
        assert not self.after(ATTEMPT).passed
        assert not self.after(ATTEMPT, {**ATTEMPT, "resumed_from_step": None}).passed
