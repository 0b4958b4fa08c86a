"""A host's attempts on cards: what their journals say of the cards, and of no other's (case C19)."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from sqlalchemy import update

from app.db import DatabaseDown
from app.fleet.models import Device, Lease
from app.holds.models import Hold
from app.holds.service import Terms, Wish, take
from app.jobs import journal
from app.jobs.models import Attempt, Job
from app.jobs.states import JobState
from app.jobs.stops import request_cancel
from tests.jobs.placing import effective_spec
from tests.workers.eventually import eventually
from tests.workers.fake_launcher import FakeRun
from tests.workers.host.bench import HostBench
from tests.workers.inventory.nvml_stand_in import Card, NvmlStandIn
from tests.workers.supervisor.bench import started
from workers.host import Host
from workers.protocol import Artifact, Done

# What becomes rows is tried with both databases in test_device_board.py and tests/jobs.
pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

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

    def test_a_job_is_told_nothing_before_its_trainer_is_up_and_after_its_end(self, bench: HostBench) -> None:
        host = bench.make(nvml=four_cards())
        bench.scene.place()
        host.attend()
        run = bench.launcher.next_run()
        host._telemetry.look()
        run.says(started())
        succeed(run)
        eventually(lambda: bench.scene.state() is JobState.SUCCEEDED)
        host._telemetry.look()
        assert telemetry_of(bench, bench.scene.job_id) == []

    def test_a_cpu_device_is_not_asked_for(self, bench: HostBench) -> None:
        nvml = four_cards()
        host = bench.make(nvml=nvml)
        host.attend()
        with bench.database.write() as session:
            session.execute(update(Device).values(kind="cpu"))
        job_id = bench.scene.add_job(device_type="cpu")
        run_next(bench, host)
        host._telemetry.look()
        assert telemetry_of(bench, job_id) == []

    def test_a_simulated_card_tells_what_its_file_says(self, bench: HostBench, tmp_path: Path) -> None:
        path = tmp_path / "cards.json"
        path.write_bytes(orjson.dumps({"devices": [{"uuid": "host-a-0", "readings": {"utilization": 0.25}}]}))
        host = bench.make(simulated_inventory=path)
        run_next(bench, host)
        host._telemetry.look()
        eventually(lambda: bool(telemetry_of(bench, bench.scene.job_id)))
        assert telemetry_of(bench, bench.scene.job_id) == [{"devices": {"host-a-0": {"utilization": 0.25}}}]

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


def attempt_of(bench: HostBench) -> Attempt:
    with bench.database.read() as session:
        return session.get_one(Attempt, (bench.scene.job_id, 1))


def notices_of(bench: HostBench) -> list[str]:
    with bench.database.read() as session:
        events = journal.read(session, bench.scene.job_id, 0, kind="notice")
    return [orjson.loads(event.text)["code"] for event in events]


def look_for(bench: HostBench, host: Host, seconds: float, step_s: float = 10.0) -> None:
    """Telemetry every `step_s` seconds of the clock, the lease renewed in between as ever."""
    host._telemetry.look()
    for _ in range(round(seconds / step_s)):
        bench.clock.advance(step_s)
        host.attend()
        host._telemetry.look()


def steady_card(utilization: int, watts: int = 300) -> NvmlStandIn:
    return NvmlStandIn([Card("host-a-0", "0000:00:00.0", utilization=utilization, milliwatts=watts * 1000)])


class TestUsage:
    def test_the_devices_readings_are_there_for_all_to_see(self, bench: HostBench) -> None:
        host = bench.make(nvml=four_cards())
        host.attend()
        host._telemetry.look()
        assert bench.device(1).readings == {"utilization": 0.2, "memory_used_bytes": 1}
        assert bench.device(1).readings_at == bench.clock.now()

    def test_an_attempt_keeps_its_energy_and_verdict_while_it_runs_and_after_its_end(self, bench: HostBench) -> None:
        host = bench.make(nvml=steady_card(90))
        run = run_next(bench, host)
        look_for(bench, host, 60)
        eventually(lambda: attempt_of(bench).energy_j == 300 * 60.0, "300 W for a minute")
        succeed(run)
        eventually(lambda: bench.scene.state() is JobState.SUCCEEDED)
        ended = attempt_of(bench)
        assert ended.utilization == pytest.approx(0.9)
        assert (ended.energy_j, ended.verdict) == (18_000.0, "compute_bound")
        assert ended.device_s == 60.0, "one device from its claim to its end"
        assert notices_of(bench) == ["verdict"]

    def test_an_idle_card_is_shown_and_noted_once(self, bench: HostBench) -> None:
        host = bench.make(nvml=steady_card(3), idle_after_s=60.0)
        run_next(bench, host)
        began = bench.clock.now()
        look_for(bench, host, 50)
        assert bench.device().idle_since is None
        look_for(bench, host, 60)
        assert bench.device().idle_since == began
        eventually(lambda: notices_of(bench) == ["idle"])
        assert bench.scene.state() is JobState.RUNNING, "nobody asked for it to be stopped"

    def test_a_job_that_asks_for_it_is_stopped_when_its_card_is_idle(self, bench: HostBench) -> None:
        spec = effective_spec() | {"stop_when_idle_s": 60}
        with bench.database.write() as session:
            session.get_one(Job, bench.scene.job_id).effective_spec = spec
        host = bench.make(nvml=steady_card(0))
        run = run_next(bench, host)
        look_for(bench, host, 50)
        assert run.heard == []
        look_for(bench, host, 10)
        eventually(lambda: [stop.reason for stop in run.heard] == ["idle"])
        run.says(Done(metrics={}, stopped="stop"))
        run.end(code=0)
        eventually(lambda: bench.scene.state() is JobState.FAILED)
        assert (bench.scene.job().cause, bench.scene.job().failures) == ("idle", 1)

    def test_a_hold_is_measured_and_survives_a_restart_of_the_worker(self, bench: HostBench) -> None:
        host = bench.make(nvml=steady_card(0, watts=50), idle_after_s=60.0)
        host.attend()
        with bench.database.write() as session:
            now = bench.clock.now()
            request_cancel(session, bench.scene.project_id, bench.scene.job_id, now)  # it would come first
            wish = Wish(bench.scene.project_id, "ana", "key_1", 1, 3600.0)
            hold_id = take(session, wish, now, Terms(lease_s=60, offline_after_s=30)).id
        look_for(bench, host, 60)
        assert bench.device().idle_since == now
        again = bench.make("start-2", nvml=steady_card(0, watts=50))
        again.attend()
        look_for(bench, again, 60)
        with bench.database.read() as session:
            hold = session.get_one(Hold, hold_id)
            lease = session.get_one(Lease, "host-a-0")
        assert (hold.ended_at, hold.energy_j) == (None, 50 * 120.0)
        assert lease.job_id == hold_id
        assert lease.expires_at == bench.clock.now() + timedelta(seconds=60), "renewed with each beat"


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
