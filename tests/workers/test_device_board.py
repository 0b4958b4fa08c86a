"""What is written up about a host's devices, and for whom."""

from datetime import timedelta
from pathlib import Path

import pytest

from app.db import Database
from app.fleet.models import Device
from app.holds.models import Hold
from tests.fakes import START, FakeClock
from tests.holds.bench import HoldBench, make_bench
from tests.workers.outage import BreakableDatabase
from workers.device_board import DeviceBoard
from workers.telemetry import Look

BUSY = {"utilization": 0.9, "power_w": 250.0}


@pytest.fixture
def bench(database: Database, clock: FakeClock) -> HoldBench:
    return make_bench(database, clock)


def board_of(bench: HoldBench, *, idle_after_s: float = 600.0, database: Database | None = None) -> DeviceBoard:
    cards = ["host-a-0", "host-a-1"]
    return DeviceBoard(database or bench.database, lambda: bench.worker_id, lambda: cards, idle_after_s)


def device(bench: HoldBench, number: int) -> Device:
    with bench.database.read() as session:
        return session.get_one(Device, f"host-a-{number}")


class TestReadings:
    def test_are_written_with_their_time(self, bench: HoldBench) -> None:
        assert board_of(bench).write(Look({"host-a-0": BUSY}))
        assert (device(bench, 0).readings, device(bench, 0).readings_at) == (BUSY, START)
        assert device(bench, 1).readings_at is None

    def test_a_device_of_another_host_is_left_alone(self, bench: HoldBench) -> None:
        board = DeviceBoard(bench.database, lambda: "wrk_other", list, 600.0)
        assert board.write(Look({"host-a-0": BUSY}))
        assert device(bench, 0).readings is None

    def test_nothing_is_written_before_the_host_is_registered(self, bench: HoldBench) -> None:
        board = DeviceBoard(bench.database, lambda: None, list, 600.0)
        assert (board.write(Look({"host-a-0": BUSY})), board.holds()) == (False, [])


class TestIdleSince:
    def test_is_when_it_began_and_does_not_tremble(self, bench: HoldBench) -> None:
        board = board_of(bench)
        bench.clock.advance(600)
        board.write(Look({"host-a-0": BUSY}, {"host-a-0": 599.0}))
        assert device(bench, 0).idle_since is None
        board.write(Look({"host-a-0": BUSY}, {"host-a-0": 600.0}))
        assert device(bench, 0).idle_since == START
        bench.clock.advance(10.001)
        board.write(Look({"host-a-0": BUSY}, {"host-a-0": 610.0}))
        assert device(bench, 0).idle_since == START
        board.write(Look({"host-a-0": BUSY}, {"host-a-0": 0.0}))
        assert device(bench, 0).idle_since is None

    def test_goes_when_nobody_has_the_card_or_it_tells_nothing(self, bench: HoldBench) -> None:
        board = board_of(bench)
        both = {"host-a-0": BUSY, "host-a-1": BUSY}
        board.write(Look(both, dict.fromkeys(both, 900.0)))
        assert device(bench, 1).idle_since is not None
        board.write(Look({"host-a-0": BUSY}, {}))
        assert (device(bench, 0).idle_since, device(bench, 1).idle_since) == (None, None)

    def test_zero_is_never(self, bench: HoldBench) -> None:
        board_of(bench, idle_after_s=0.0).write(Look({"host-a-0": BUSY}, {"host-a-0": 1e9}))
        assert device(bench, 0).idle_since is None

    def test_a_hold_that_ends_sooner_is_shown_sooner(self, bench: HoldBench) -> None:
        bench.take(1, stop_when_idle_s=120.0)
        bench.take(1)
        board = board_of(bench)
        assert [hold.stop_when_idle_s for hold in board.holds()] == [120.0, None]
        both = {"host-a-0": BUSY, "host-a-1": BUSY}
        board.write(Look(both, dict.fromkeys(both, 120.0)))
        assert device(bench, 0).idle_since == START - timedelta(seconds=120)
        assert device(bench, 1).idle_since is None


class TestHolds:
    def test_their_energy_adds_up_over_restarts(self, bench: HoldBench) -> None:
        hold = bench.take(1)
        for joules in (100.0, 50.0):
            assert board_of(bench).write(Look({}, {}, {hold.id: joules}))
        with bench.database.read() as session:
            assert session.get_one(Hold, hold.id).energy_j == 150.0

    @pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
    def test_an_outage_keeps_those_that_are_known(self, bench: HoldBench, clock: FakeClock, tmp_path: Path) -> None:
        del tmp_path
        hold = bench.take(1)
        broken = BreakableDatabase(bench.database.url, clock=clock)
        try:
            board = board_of(bench, database=broken)
            assert [held.hold_id for held in board.holds()] == [hold.id]
            broken.down = True
            assert [held.hold_id for held in board.holds()] == [hold.id]
            assert board.write(Look({"host-a-0": BUSY})) is False
        finally:
            broken.dispose()
