"""Which attempt is told what, and that nothing waits for the driver."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from tests.workers.eventually import eventually
from workers.inventory.telemetry import Sample
from workers.telemetry import Telemetry


@dataclass
class Trial:
    """An attempt on some cards."""

    held: Sequence[str] = ()
    told: list[Sample] = field(default_factory=list)

    def cards(self) -> Sequence[str]:
        return self.held

    def tell_cards(self, values: Sample) -> None:
        self.told.append(values)


class Driver:
    """Answers each card's number as its utilization; `here` runs while it is asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.here: Callable[[], object] = bool

    def __call__(self, cards: Sequence[str]) -> Sample:
        self.asked.append(list(cards))
        self.here()
        return {card: {"utilization": int(card) / 100} for card in cards if card.isdigit()}


class TestLook:
    def test_each_attempt_is_told_of_its_own_cards_by_one_question(self) -> None:
        driver, one, two = Driver(), Trial(("30", "40")), Trial(("10",))
        Telemetry(driver, 1.0, lambda: [one, two]).look()
        assert one.told == [{"30": {"utilization": 0.3}, "40": {"utilization": 0.4}}]
        assert two.told == [{"10": {"utilization": 0.1}}]
        assert driver.asked == [["30", "40", "10"]]

    def test_without_a_card_in_use_the_driver_is_left_alone(self) -> None:
        driver = Driver()
        Telemetry(driver, 1.0, lambda: [Trial(), Trial()]).look()
        Telemetry(driver, 1.0, list[Trial]).look()
        assert driver.asked == []

    def test_cards_that_tell_nothing_make_no_entry(self) -> None:
        mute, half = Trial(("x",)), Trial(("y", "20"))
        Telemetry(Driver(), 1.0, lambda: [mute, half]).look()
        assert mute.told == []
        assert half.told == [{"20": {"utilization": 0.2}}]

    def test_cards_that_were_released_while_the_driver_was_asked_are_not_told(self) -> None:
        driver, ends, stays = Driver(), Trial(("10",)), Trial(("20",))
        driver.here = lambda: setattr(ends, "held", ())
        Telemetry(driver, 1.0, lambda: [ends, stays]).look()
        assert (ends.told, len(stays.told)) == ([], 1)


class TestThread:
    @pytest.mark.parametrize("interval_s", [0.0, 0.001])
    def test_zero_is_off(self, interval_s: float) -> None:
        trial = Trial(("10",))
        telemetry = Telemetry(Driver(), interval_s, lambda: [trial])
        telemetry.start()
        assert telemetry._thread.is_alive() == bool(interval_s)
        if interval_s:
            eventually(lambda: len(trial.told) > 1)
        telemetry.stop()
        telemetry.stop()
        eventually(lambda: not telemetry._thread.is_alive())

    def test_it_outlives_a_fault_and_logs_it(self) -> None:
        driver, trial, faults = Driver(), Trial(("10",)), iter([RuntimeError("broken")])

        def fail_once() -> None:
            for fault in faults:
                raise fault

        driver.here = fail_once
        telemetry = Telemetry(driver, 0.001, lambda: [trial])
        with capture_logs() as logs:
            telemetry.start()
            eventually(lambda: bool(trial.told))
            telemetry.stop()
            telemetry._thread.join(20)
        assert [entry["event"] for entry in logs] == ["telemetry_failed"]

    def test_a_driver_that_blocks_holds_nobody_up(self) -> None:
        driver, asked, answers = Driver(), threading.Event(), threading.Event()

        def block() -> None:
            asked.set()
            answers.wait(20)

        driver.here = block
        telemetry = Telemetry(driver, 0.001, lambda: [Trial(("10",))])
        telemetry.start()
        try:
            assert asked.wait(20)
            telemetry.stop()
            assert telemetry._thread.is_alive(), "stop has returned, and the driver has not"
            assert telemetry._thread.daemon, "so the worker can end"
        finally:
            answers.set()
            telemetry._thread.join(20)
        assert not telemetry._thread.is_alive()
