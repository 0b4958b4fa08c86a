"""Ending an attempt on purpose: a signal, a deadline, closing the handle."""

import signal
from collections.abc import Callable

import pytest

from tests.workers.launcher.attempt import Watched, boot_ns
from tests.workers.launcher.conftest import Start
from workers.launch import Ended
from workers.protocol import Stop

Watch = Callable[[int], Watched]


class TestStop:
    def test_term_ends_a_trainer_that_does_not_handle_it(self, start: Start) -> None:
        attempt = start("run")
        attempt.line()
        attempt.run.stop(signal.SIGTERM)

        assert attempt.ended().signal == signal.SIGTERM

    def test_kill_ends_one_that_ignored_term(self, start: Start) -> None:
        attempt = start("ignore_term")
        attempt.line()
        attempt.run.stop(signal.SIGTERM)
        assert attempt.line()["ignored"] == "TERM"
        attempt.run.stop(signal.SIGKILL)

        assert attempt.ended().signal == signal.SIGKILL

    def test_term_reaches_the_whole_group(self, start: Start) -> None:
        attempt = start("fork_and_ignore_term")
        family = {attempt.line()["pid"] for _ in range(2)}
        attempt.run.stop(signal.SIGTERM)

        assert {attempt.line()["pid"] for _ in range(2)} == family

    def test_kill_takes_the_whole_group(self, start: Start, watch: Watch) -> None:
        attempt = start("fork_children")
        family = [watch(attempt.line()["pid"]) for _ in range(3)]
        attempt.run.stop(signal.SIGKILL)

        assert attempt.ended() == Ended(None, signal.SIGKILL, attempt.ended().max_rss_bytes, survivors=False)
        assert all(member.gone() for member in family)

    def test_trainer_gets_messages(self, start: Start) -> None:
        attempt = start("echo")
        attempt.run.send(Stop(reason="cancel"))

        assert attempt.line() == {"type": "stop", "reason": "cancel"}
        assert attempt.ended().code == 0

    def test_orders_to_an_ended_trainer_are_lost_without_an_error(self, start: Start) -> None:
        attempt = start("exit_with_seed")
        attempt.ended()
        attempt.run.stop(signal.SIGTERM)
        attempt.run.extend(boot_ns())
        attempt.run.send(Stop(reason="cancel"))
        attempt.run.close()
        attempt.run.stop(signal.SIGTERM)
        attempt.run.send(Stop(reason="cancel"))

        assert attempt.run.events() == []


class TestDeadline:
    @pytest.mark.parametrize("entry", ["run", "freeze"])
    def test_past_deadline_kills_also_a_frozen_trainer(self, start: Start, entry: str) -> None:
        attempt = start(entry)
        attempt.line()
        attempt.run.extend(boot_ns() - 1)
        end = attempt.ended()

        assert (end.signal, end.deadline, end.survivors) == (signal.SIGKILL, True, False)

    def test_deadline_of_the_request_holds_without_a_message(self, start: Start) -> None:
        end = start("run", changes={"until_boot_ns": boot_ns() + 300_000_000}).ended()

        assert (end.signal, end.deadline) == (signal.SIGKILL, True)

    def test_extended_trainer_outlives_its_first_deadline(self, start: Start) -> None:
        first = boot_ns() + 1_000_000_000
        attempt = start("outlive", seed=first + 50_000_000, changes={"until_boot_ns": first})
        attempt.run.extend(first + 3_600_000_000_000)

        assert attempt.ended().code == 0

    def test_nothing_starts_past_the_deadline(self, start: Start) -> None:
        attempt = start("run", changes={"until_boot_ns": boot_ns() - 1})

        assert attempt.ended() == Ended(None, signal.SIGKILL, 0, survivors=False, deadline=True)
        assert len(attempt.events) == 1

    def test_deadline_of_years_does_not_overflow_the_poll(self, start: Start) -> None:
        assert start("exit_with_seed", changes={"until_boot_ns": 2**62}).ended().code == 0


class TestClose:
    @pytest.mark.parametrize("entry", ["run", "freeze", "ignore_term"])
    def test_close_ends_a_running_trainer(self, start: Start, watch: Watch, entry: str) -> None:
        attempt = start(entry)
        trainer = watch(attempt.line()["pid"])
        attempt.run.close()

        assert not trainer.alive()

    def test_second_close_does_nothing(self, start: Start) -> None:
        attempt = start("run")
        attempt.run.close()
        attempt.run.close()

        assert attempt.run.messages.fileno() == -1

    def test_close_before_anything_was_read_ends_it_too(self, start: Start, watch: Watch) -> None:
        attempt = start("fork_children")
        family = [watch(attempt.line()["pid"]) for _ in range(3)]
        attempt.run.close()

        assert not any(member.alive() for member in family)
