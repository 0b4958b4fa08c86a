"""A host's attempts on cards: what their journals say of the cards, and of no other's (case C19)."""

from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import update

from app.db import DatabaseDown
from app.fleet.models import Device
from app.jobs import journal
from app.jobs.states import JobState
from tests.workers.eventually import eventually
from tests.workers.fake_launcher import FakeRun
from tests.workers.host.bench import HostBench
from tests.workers.inventory.nvml_stand_in import Card, NvmlStandIn
from tests.workers.supervisor.bench import started
from workers.host import Host
from workers.protocol import Artifact, Done

OFTEN_S = 0.01


def four_cards(*order: int) -> NvmlStandIn:
    """The host's devices, busy with 10, 20, 30 and 40 %, in the order in which the driver lists them."""
    cards = [Card(f"host-a-{n}", f"0000:0{n}:00.0", utilization=10 * (n + 1), used=n) for n in range(4)]
    return NvmlStandIn([cards[n] for n in order or range(4)])


def telemetry_of(bench: HostBench, job_id: str) -> list[dict[str, Any]]:
    with bench.database.read() as session:
        events = journal.read(session, job_id, 0, kind="telemetry")
    return [orjson.loads(event.text) for event in events]


def run_next(bench: HostBench, host: Host) -> FakeRun:
    """Start the job that waits, up to where the database knows that it runs."""
    run = bench.place_and_run(host)
    job_id = run.request.assignment.job_id
    eventually(lambda: bench.scene.state(job_id) is JobState.RUNNING)
    return run


def succeed(run: FakeRun) -> None:
    (Path(run.request.assignment.work_dir) / "model").write_bytes(b"x")
    run.says(Artifact(name="model", path="model", media_type="a/b", kind="model"), Done(metrics={}))
    run.end(code=0)


class TestJournal:
    @pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
    def test_a_job_on_the_third_and_fourth_card_reports_those_and_nothing_else(
        self, bench: HostBench, order: tuple[int, ...]
    ) -> None:
        host = bench.make(devices=4, nvml=four_cards(*order))
        run_next(bench, host)
        second = bench.scene.add_job()
        run_next(bench, host)
        pair = bench.scene.add_job(device_count=2)
        run = run_next(bench, host)
        assert [device.id for device in run.request.assignment.devices] == ["host-a-2", "host-a-3"]

        host._telemetry.look()
        jobs = (bench.scene.job_id, second, pair)
        eventually(lambda: all(telemetry_of(bench, job_id) for job_id in jobs), "an entry of each")
        assert telemetry_of(bench, pair) == [
            {
                "devices": {
                    "host-a-2": {"utilization": 0.3, "memory_used_bytes": 2},
                    "host-a-3": {"utilization": 0.4, "memory_used_bytes": 3},
                }
            }
        ]
        (first_entry,), (second_entry,) = (telemetry_of(bench, job_id) for job_id in jobs[:2])
        assert list(first_entry["devices"]) == ["host-a-0"]
        assert list(second_entry["devices"]) == ["host-a-1"]

    def test_it_goes_on_by_itself_while_the_job_runs(self, bench: HostBench) -> None:
        host = bench.make(nvml=four_cards(), telemetry_s=OFTEN_S)
        bench.scene.place()
        host.start()
        bench.launcher.next_run().says(started())
        eventually(lambda: len(telemetry_of(bench, bench.scene.job_id)) > 2, "several entries")
        host._telemetry.stop()
        host._telemetry._thread.join(20)

    def test_nobody_is_asked_before_the_trainer_is_up_and_after_its_end(self, bench: HostBench) -> None:
        nvml = four_cards()
        host = bench.make(nvml=nvml)
        bench.scene.place()
        host.attend()
        run = bench.launcher.next_run()
        host._telemetry.look()
        assert nvml.asked == []
        run.says(started())
        succeed(run)
        eventually(lambda: bench.scene.state() is JobState.SUCCEEDED)
        host._telemetry.look()
        assert nvml.asked == []

    @pytest.mark.parametrize("values", [{"simulated": True}, {"kind": "cpu"}])
    def test_what_is_no_real_card_is_not_asked_for(self, bench: HostBench, values: dict[str, Any]) -> None:
        nvml = four_cards()
        host = bench.make(nvml=nvml)
        host.attend()
        with bench.database.write() as session:
            session.execute(update(Device).values(**values))
        if "kind" in values:
            bench.scene.add_job(device_type="cpu")
        run_next(bench, host)
        host._telemetry.look()
        assert nvml.asked == []

    def test_an_outage_of_the_database_delays_it(self, bench: HostBench) -> None:
        host = bench.make(nvml=four_cards())
        run_next(bench, host)
        bench.database.down = True
        for _ in range(3):
            host._telemetry.look()
        with pytest.raises(DatabaseDown):
            host.attend()
        bench.database.down = False
        eventually(lambda: len(telemetry_of(bench, bench.scene.job_id)) == 3)


class TestBlockedDriver:
    def test_beats_go_on_and_the_run_ends_as_ever(self, bench: HostBench) -> None:
        nvml = four_cards()
        nvml.answers.clear()
        host = bench.make(nvml=nvml, telemetry_s=OFTEN_S)
        bench.scene.place()
        host.start()
        run = bench.launcher.next_run()
        run.says(started())
        try:
            eventually(lambda: bool(nvml.asked), "the question that is never answered")
            before = run.until[-1:]
            bench.clock.advance(20)
            host.attend()
            eventually(lambda: run.until[-1:] != before, "a later deadline")
            succeed(run)
            eventually(lambda: bench.scene.state() is JobState.SUCCEEDED)
            host.stop()
            assert bench.worker().state == "offline"
            assert host._telemetry._thread.is_alive(), "the driver has not answered yet"
        finally:
            nvml.answers.set()
            host._telemetry._thread.join(20)
        assert telemetry_of(bench, bench.scene.job_id) == []
