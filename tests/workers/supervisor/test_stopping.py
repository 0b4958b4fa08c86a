"""The steps of a stop, with time as a number."""

import signal
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.jobs.states import StopRequest
from workers.stopping import SECOND_NS, StopReason, StopSteps, stronger

MESSAGE, TERM, KILL = None, signal.SIGTERM, signal.SIGKILL


def seconds(value: float) -> int:
    return round(value * SECOND_NS)


class TestSteps:
    def test_message_term_kill_at_their_times(self) -> None:
        steps = StopSteps(grace_s=15)
        steps.ask(StopReason.CANCEL, 0)
        assert steps.take(0) == [MESSAGE]
        assert steps.next_ns() == seconds(1)
        assert steps.take(seconds(1)) == [TERM]
        assert steps.take(seconds(14.9)) == []
        assert steps.take(seconds(15)) == [KILL]
        assert steps.next_ns() is None

    def test_a_short_grace_still_has_time_between_term_and_kill(self) -> None:
        steps = StopSteps(grace_s=0.5)
        steps.ask(StopReason.CANCEL, 0)
        assert steps.take(seconds(0.25)) == [MESSAGE, TERM]
        assert steps.take(seconds(0.5)) == [KILL]

    def test_nothing_is_due_before_a_stop(self) -> None:
        steps = StopSteps(grace_s=1)
        assert (steps.take(seconds(100)), steps.next_ns()) == ([], None)

    def test_fenced_kills_at_once_and_once(self) -> None:
        steps = StopSteps(grace_s=15)
        steps.ask(StopReason.DRAIN, 0)
        steps.ask(StopReason.FENCED, 1)
        assert steps.take(1) == [KILL]
        steps.ask(StopReason.FENCED, 2)
        assert steps.take(seconds(60)) == []

    def test_a_second_request_does_not_begin_again(self) -> None:
        steps = StopSteps(grace_s=15)
        steps.ask(StopReason.DRAIN, 0)
        steps.take(0)
        steps.ask(StopReason.CANCEL, seconds(10))
        assert steps.take(seconds(10)) == [TERM]
        assert steps.take(seconds(15)) == [KILL]
        assert steps.reason is StopReason.CANCEL

    @given(
        st.lists(
            st.tuples(st.sampled_from([r for r in StopReason if r is not StopReason.FENCED]), st.floats(0, 5)),
            min_size=1,
        ),
        st.floats(0.1, 30),
    )
    @settings(deadline=None)
    def test_whatever_is_asked_each_step_comes_once_and_in_order(
        self, asked: list[tuple[StopReason, float]], grace_s: float
    ) -> None:
        steps, taken, now = StopSteps(grace_s), [], 0
        for reason, wait in asked:
            now += seconds(wait)
            steps.ask(reason, now)
            taken += steps.take(now)
        taken += steps.take(now + seconds(grace_s) + 1)
        assert taken == [MESSAGE, TERM, KILL]
        assert steps.killed


class TestStrength:
    def test_order_is_that_of_the_jobs_own_requests(self) -> None:
        requests = sorted(StopRequest, key=lambda request: request.strength)
        ranks = [StopReason(request.value).strength for request in requests]
        assert all(low < high for low, high in pairwise(ranks))

    @pytest.mark.parametrize("reason", list(StopReason))
    def test_a_stronger_one_replaces_and_a_weaker_one_does_not(self, reason: StopReason) -> None:
        assert stronger(None, reason) is reason
        assert stronger(StopReason.FENCED, reason) is StopReason.FENCED
        assert stronger(StopReason.DRAIN, reason) is reason
