"""What an attempt's journal is told of its cards, and when an idle one is stopped."""

from typing import Any

import pytest

from workers.inventory.telemetry import Sample
from workers.spool import Spool
from workers.work_meter import WorkMeter

SECOND_NS = 1_000_000_000


class Bench:
    def __init__(self, *cards: str, **settings: Any) -> None:
        self.spool = Spool(max_log_bytes=1000)
        self.stops = 0
        given: dict[str, Any] = {"idle_after_s": 600.0, "stop_when_idle_s": None} | settings
        self.cards = cards or ("a",)
        self.meter = WorkMeter(self.cards, self.spool, on_idle=self._stop, **given)

    def _stop(self) -> None:
        self.stops += 1

    def look(self, second: float, busy: float, **idle_s: float) -> None:
        values: Sample = {card: {"utilization": busy} for card in self.cards}
        self.meter.add(round(second * SECOND_NS), values, idle_s)

    def notices(self) -> list[dict[str, Any]]:
        batch = self.spool.take()
        return [] if batch is None else [dict(entry.data) for entry in batch.entries if entry.kind == "notice"]


class TestIdleNotice:
    def test_comes_once_when_all_cards_were_idle_for_long_enough(self) -> None:
        bench = Bench("a", "b")
        for second, one, other in ((0, 0.0, 0.0), (700, 700.0, 100.0), (1200, 1200.0, 600.0), (1300, 1300.0, 700.0)):
            bench.look(second, 0.0, a=one, b=other)
        (notice,) = bench.notices()
        assert notice["code"] == "idle"
        assert "for 10 minutes; nothing stops it" in notice["message"]

    def test_a_card_that_cannot_tell_is_not_taken_for_idle(self) -> None:
        bench = Bench("a", "b", stop_when_idle_s=60.0)
        bench.look(5000, 0.0, a=5000.0)
        assert (bench.notices(), bench.stops) == ([], 0)

    def test_zero_is_never(self) -> None:
        bench = Bench(idle_after_s=0.0)
        bench.look(90_000, 0.0, a=90_000.0)
        assert bench.notices() == []


class TestStop:
    @pytest.mark.parametrize(("idle_s", "stops"), [(1799.0, 0), (1800.0, 1)])
    def test_is_asked_for_when_the_spec_says_so(self, idle_s: float, stops: int) -> None:
        bench = Bench(stop_when_idle_s=1800.0)
        bench.look(idle_s, 0.0, a=idle_s)
        assert bench.stops == stops
        assert "it is stopped after 30 minutes" in bench.notices()[0]["message"]


class TestConclude:
    def test_says_the_verdict_with_its_sentence(self) -> None:
        bench = Bench()
        for second in (0, 40):
            bench.look(second, 0.5)
        bench.meter.conclude()
        (notice,) = bench.notices()
        assert notice["code"] == "verdict"
        assert "busy 50 % of the time" in notice["message"]
        measured = bench.meter.measured()
        assert measured is not None
        assert measured.verdict == "input_bound"

    @pytest.mark.parametrize("seconds", [[], [0], [0, 10]])
    def test_is_silent_when_there_is_none(self, seconds: list[float]) -> None:
        bench = Bench()
        for second in seconds:
            bench.look(second, 0.5)
        bench.meter.conclude()
        assert bench.notices() == []
