"""What ends a hold by itself, and what does not."""

from datetime import timedelta
from typing import Any

import pytest

from app.fleet import registry
from app.fleet.models import Worker
from app.holds.upkeep import expire
from tests.fakes import START
from tests.holds.bench import HOUR_S, HoldBench

ONE_DATABASE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)


def idle_since(bench: HoldBench, number: int, since_s: float, until_s: float) -> None:
    """What a worker writes that saw the card idle from one second of the hold to another."""
    at = {"idle_since": START + timedelta(seconds=since_s), "readings_at": START + timedelta(seconds=until_s)}
    bench.set_device(number, **at)


class TestExpire:
    def test_its_time_ends_it_and_not_before(self, bench: HoldBench) -> None:
        hold = bench.take(2)
        bench.clock.advance(HOUR_S - 1)
        assert expire(bench.database) == 0
        bench.clock.advance(1)
        assert expire(bench.database) == 1
        assert expire(bench.database) == 0
        ended = bench.hold(hold.id)
        assert (ended.ended_why, ended.ended_at) == ("expired", START + timedelta(hours=1))
        assert bench.leases() == {}

    @ONE_DATABASE
    def test_a_silent_host_does_not(self, bench: HoldBench) -> None:
        hold = bench.take(1)
        bench.clock.advance(HOUR_S / 2)  # long after the lease ran out: nobody renews it here
        bench.set_device(0, health="gone")
        with bench.database.write() as session:
            session.get_one(Worker, bench.worker_id).state = "offline"
        assert expire(bench.database) == 0
        assert bench.leases() == {"host-a-0": hold.id}

    @ONE_DATABASE
    def test_when_all_its_devices_are_gone_it_is_over(self, bench: HoldBench) -> None:
        hold = bench.take(2)
        bench.set_device(0, health="gone")
        assert expire(bench.database) == 0, "one is still there"
        bench.set_device(1, health="gone")
        assert expire(bench.database) == 1
        assert bench.hold(hold.id).ended_why == "device_gone"

    @ONE_DATABASE
    def test_one_look_that_missed_them_ends_nothing(self, bench: HoldBench) -> None:
        hold = bench.take(1)
        bench.set_device(0, health="gone", health_at=START)
        bench.wait(59)
        assert expire(bench.database) == 0, "a job loses its card after two looks, not one"
        bench.set_device(0, health="ok", health_at=bench.clock.now())
        bench.wait(60)
        bench.set_device(0, health="gone", health_at=bench.clock.now())
        bench.wait(60)
        assert expire(bench.database) == 1
        assert bench.hold(hold.id).ended_why == "device_gone"

    def test_idle_cards_end_it_where_that_was_asked_for(self, bench: HoldBench) -> None:
        patient, hasty = bench.take(1), bench.take(1, stop_when_idle_s=600.0)
        for number in range(2):
            idle_since(bench, number, 100, 699)
        assert expire(bench.database) == 0, "599 s are less than 600"
        for number in range(2):
            idle_since(bench, number, 100, 700)
        assert expire(bench.database) == 1
        assert bench.hold(hasty.id).ended_why == "idle"
        assert bench.hold(patient.id).ended_at is None

    @ONE_DATABASE
    @pytest.mark.parametrize(
        "second",
        [
            {"idle_since": None, "readings_at": START + timedelta(hours=1)},  # it works
            {"idle_since": START, "readings_at": None},  # it cannot be measured
        ],
    )
    def test_one_card_that_works_or_cannot_tell_keeps_it(self, bench: HoldBench, second: dict[str, Any]) -> None:
        bench.take(2, stop_when_idle_s=600.0, for_s=10 * HOUR_S)
        bench.clock.advance(HOUR_S)
        idle_since(bench, 0, 0, HOUR_S)
        bench.set_device(1, **second)
        assert expire(bench.database) == 0

    @ONE_DATABASE
    def test_only_what_was_seen_counts_not_the_time_since(self, bench: HoldBench) -> None:
        # The worker is away since second 300: what the cards did after that nobody knows.
        bench.take(1, stop_when_idle_s=600.0, for_s=10 * HOUR_S)
        idle_since(bench, 0, 0, 300)
        bench.clock.advance(HOUR_S)
        assert expire(bench.database) == 0

    @ONE_DATABASE
    def test_idleness_of_the_holder_before_does_not_count(self, bench: HoldBench) -> None:
        bench.wait(1000)
        bench.take(1, stop_when_idle_s=600.0)
        idle_since(bench, 0, 0, 1010)
        assert expire(bench.database) == 0


class TestHeartbeat:
    def test_renews_the_leases_of_holds_and_names_them_to_nobody(self, bench: HoldBench) -> None:
        # What it names and the worker does not run would be settled as a stray.
        hold = bench.take(1)
        for _ in range(3):
            bench.clock.advance(50)
            with bench.database.write() as session:
                now = bench.clock.now()
                beat = registry.heartbeat(session, bench.worker_id, "instance-1", now, 60, ended_too=True)
            assert (beat.current, beat.renewed) == (True, set())
        assert bench.leases() == {"host-a-0": hold.id}
        assert expire(bench.database) == 0
