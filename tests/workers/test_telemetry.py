"""Which attempt is told what, what is written up, and that nothing waits for the driver."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from structlog.testing import capture_logs

from app.holds.repository import HeldDevices
from tests.fakes import FakeClock
from tests.workers.eventually import eventually
from workers.inventory.telemetry import ENERGY_COUNTER, Sample
from workers.telemetry import Look, Telemetry


@dataclass
class Trial:
    """An attempt on some cards."""

    held: Sequence[str] = ()
    told: list[Sample] = field(default_factory=list)
    idle: list[Mapping[str, float]] = field(default_factory=list)
    name: str = "job"

    @property
    def key(self) -> tuple[str, int]:
        return (self.name, 1)

    def cards(self) -> Sequence[str]:
        return self.held

    def tell_cards(self, at_ns: int, values: Sample, idle_s: Mapping[str, float]) -> None:
        del at_ns
        self.told.append(values)
        self.idle.append(idle_s)


class Driver:
    """Answers each card's number as its utilization; `here` runs while it is asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self.here: Callable[[], object] = bool

    def __call__(self, cards: Sequence[str]) -> Sample:
        self.asked.append(list(cards))
        self.here()
        return {card: {"utilization": int(card) / 100} for card in cards if card.isdigit()}


@dataclass
class Wall:
    """Keeps what is written up, unless it is closed."""

    has: Sequence[str] = ()
    held: list[HeldDevices] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    closed: bool = False

    def cards(self) -> Sequence[str]:
        return self.has

    def holds(self) -> Sequence[HeldDevices]:
        return self.held

    def write(self, look: Look) -> bool:
        self.looks.append(look)
        return not self.closed


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


class TestWrittenUp:
    def test_every_card_of_the_host_held_or_not(self) -> None:
        driver, wall = Driver(), Wall(has=("10", "20", "x"))
        Telemetry(driver, 1.0, lambda: [Trial(("20",))], wall, FakeClock()).look()
        assert driver.asked == [["20", "10", "x"]], "once each"
        (look,) = wall.looks
        assert look.readings == {"20": {"utilization": 0.2}, "10": {"utilization": 0.1}}
        assert look.idle_s == {"20": 0.0}, "that nobody has the other is no idleness"

    def test_idle_seconds_go_to_the_attempt_and_to_all(self) -> None:
        clock, wall, trial = FakeClock(), Wall(), Trial(("0", "30"))
        telemetry = Telemetry(Driver(), 1.0, lambda: [trial], wall, clock)
        for _ in range(3):
            telemetry.look()
            clock.advance(10)
        assert trial.idle[-1] == {"0": 20.0, "30": 0.0}
        assert wall.looks[-1].idle_s == {"0": 20.0, "30": 0.0}

    def test_a_hold_is_measured_like_an_attempt(self) -> None:
        clock, wall = FakeClock(), Wall(held=[HeldDevices("hold_1", ("0", "mute"), None)])
        telemetry = Telemetry(lambda _cards: {"0": {"utilization": 0.0, "power_w": 50.0}}, 1.0, list, wall, clock)
        for _ in range(3):
            telemetry.look()
            clock.advance(10)
        assert [look.hold_energy_j for look in wall.looks] == [{}, {"hold_1": 500.0}, {"hold_1": 500.0}]
        assert wall.looks[-1].idle_s == {"0": 20.0}

    def test_energy_that_could_not_be_written_comes_with_the_next(self) -> None:
        clock, wall = FakeClock(), Wall(held=[HeldDevices("hold_1", ("0",), None)], closed=True)
        telemetry = Telemetry(lambda _cards: {"0": {"power_w": 50.0}}, 1.0, list, wall, clock)
        for _ in range(2):
            telemetry.look()
            clock.advance(10)
        wall.closed = False
        telemetry.look()
        assert wall.looks[-1].hold_energy_j == {"hold_1": 1000.0}

    def test_the_energy_counter_is_shown_to_nobody(self) -> None:
        wall = Wall(has=("0",))
        Telemetry(lambda _cards: {"0": {ENERGY_COUNTER: 1e6}}, 1.0, list, wall, FakeClock()).look()
        assert wall.looks == [Look({}, {}, {})]


class TestThread:
    def test_a_new_attempt_is_looked_at_long_before_the_interval_is_over(self) -> None:
        attempts: list[Trial] = []
        telemetry = Telemetry(Driver(), 3600.0, lambda: attempts)
        telemetry.start()
        attempts.append(Trial(("10",)))
        eventually(lambda: bool(attempts[0].told))
        telemetry.stop()
        telemetry._thread.join(20)
        assert len(attempts[0].told) == 1

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
