"""Signals as something to wait for."""

import signal
import subprocess
import sys
import time

import pytest

from app.cli.up.signals import Signals
from tests.cli.up.waiting import until


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
    def test_a_request_to_stop_is_counted_and_interrupts_nothing(self, number: signal.Signals) -> None:
        with Signals() as signals:
            signal.raise_signal(number)
            signals.wait(30)
            assert signals.stops_asked == 1

    def test_a_child_that_ends_wakes_but_asks_for_nothing(self) -> None:
        with Signals() as signals:
            child = subprocess.Popen([sys.executable, "-c", ""])
            child.wait()
            signals.wait(1)
            assert signals.stops_asked == 0

    def test_time_that_is_over_is_no_wait(self) -> None:
        with Signals() as signals:
            signals.wait(-1)
            assert signals.stops_asked == 0

    def test_all_that_came_before_the_wait_is_counted(self) -> None:
        with Signals() as signals:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
                signal.raise_signal(number)
            signals.wait(30)
            assert signals.stops_asked == 3

    def test_a_process_that_was_stopped_for_long_has_not_been_asked_to_stop(self) -> None:
        # What sigtimedwait got wrong: frozen for longer than the time-out, then thawed.
        code = (
            "import sys; from app.cli.up.signals import Signals\n"
            "with Signals() as signals:\n"
            "    print('ready', flush=True); signals.wait(0.2); print(signals.stops_asked, flush=True)"
        )
        with subprocess.Popen([sys.executable, "-P", "-c", code], stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGSTOP)
            stopped_at = time.monotonic()
            until(lambda: time.monotonic() - stopped_at > 0.5, "the time-out has passed")
            process.send_signal(signal.SIGCONT)
            assert process.stdout.readline() == "0\n"

    def test_afterwards_everything_is_as_before(self) -> None:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)
        before = [signal.getsignal(number) for number in numbers]
        with Signals():
            assert [signal.getsignal(number) for number in numbers] != before
        assert [signal.getsignal(number) for number in numbers] == before
        assert signal.set_wakeup_fd(-1) == -1

    def test_what_nohup_ignores_stays_ignored(self) -> None:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            with Signals() as signals:
                signal.raise_signal(signal.SIGHUP)
                signals.wait(0)
                assert signals.stops_asked == 0
        finally:
            signal.signal(signal.SIGHUP, before)
