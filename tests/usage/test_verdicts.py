"""Which busyness means what."""

import pytest

from app.usage.verdicts import ENOUGH_S, WorkVerdict, judge, sentence


class TestJudge:
    @pytest.mark.parametrize(
        ("utilization", "expected"),
        [
            (0.0, "idle"),
            (0.049, "idle"),
            (0.05, "input_bound"),
            (0.69, "input_bound"),
            (0.70, "compute_bound"),
            (1.0, "compute_bound"),
            (None, "unknown"),
        ],
    )
    def test_goes_by_the_documented_bounds(self, utilization: float | None, expected: str) -> None:
        # docs/holds.md: below 5 %, below 70 %, and from there on.
        assert judge(utilization, ENOUGH_S) == expected

    def test_too_short_a_look_says_nothing(self) -> None:
        assert judge(0.0, ENOUGH_S - 1) is WorkVerdict.UNKNOWN


class TestSentence:
    def test_says_how_busy_they_were(self) -> None:
        assert sentence(WorkVerdict.INPUT_BOUND, 0.384).startswith("Its cards were busy 38 % of the time")

    def test_each_verdict_has_one_of_its_own(self) -> None:
        said = {sentence(verdict, 0.5) for verdict in WorkVerdict}
        assert len(said) == len(WorkVerdict)
        assert all(text.endswith(".") for text in said)
