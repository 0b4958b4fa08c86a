"""Work that is done again and again by a thread, and what does not come back."""

import threading

import pytest
from structlog.testing import capture_logs

from tests.fakes import FakeClock
from tests.workers.eventually import eventually
from workers.repeated import Repeated, within

OFTEN_S = 0.005


class TestRepeated:
    def test_it_goes_on_until_it_is_stopped(self) -> None:
        calls: list[int] = []
        repeated = Repeated("counting", OFTEN_S, lambda: calls.append(1), FakeClock())
        repeated.start()
        eventually(lambda: len(calls) > 2)
        repeated.stop()
        repeated.stop()
        repeated._thread.join(20)
        assert not repeated._thread.is_alive()

    def test_a_fault_is_logged_and_ends_nothing(self) -> None:
        calls: list[int] = []

        def fail() -> None:
            calls.append(1)
            raise ValueError("odd")

        repeated = Repeated("failing", OFTEN_S, fail, FakeClock())
        with capture_logs() as lines:
            repeated.call()
            repeated.call()
        assert len(calls) == 2
        assert [(line["event"], line["work"]) for line in lines] == [("repeated_work_failed", "failing")] * 2
        assert repeated.under_way_s == 0

    def test_a_call_that_hangs_is_seen(self) -> None:
        began, go_on, clock = threading.Event(), threading.Event(), FakeClock()

        def hang() -> None:
            began.set()
            go_on.wait(20)

        repeated = Repeated("hanging", OFTEN_S, hang, clock)
        repeated.start()
        try:
            assert began.wait(20)
            clock.advance(90)
            assert repeated.under_way_s == 90
            repeated.stop()
        finally:
            go_on.set()
            repeated._thread.join(20)
        assert repeated.under_way_s == 0


class TestWithin:
    def test_what_comes_in_time_is_the_answer(self) -> None:
        assert within(20, lambda: 1, otherwise=2) == 1

    def test_what_does_not_is_left_to_itself(self) -> None:
        go_on = threading.Event()
        try:
            assert within(0.01, lambda: go_on.wait(20), otherwise=False) is False
        finally:
            go_on.set()

    def test_an_error_in_time_is_raised_here(self) -> None:
        def fail() -> int:
            raise KeyError("odd")

        with pytest.raises(KeyError, match="odd"):
            within(20, fail, otherwise=1)
