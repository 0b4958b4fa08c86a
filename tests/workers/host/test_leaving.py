"""A host that is drained, that leaves by itself, and what it tells a health check."""

import json
from pathlib import Path

from sqlalchemy import text
from structlog.testing import capture_logs

from app.beacon import WORKER_BEACON, read_beacon
from app.fleet.registry import set_cordoned, set_draining
from app.jobs.states import JobState
from tests.workers.eventually import eventually
from tests.workers.host.bench import HostBench
from tests.workers.host.looking import cause, look, obey, running, set_revision
from workers.host import BLIND, Host, Limits
from workers.stopping import StopReason


class TestDrain:
    def test_what_runs_stops_at_its_safe_point_and_goes_on_when_the_host_is_back(self, bench: HostBench) -> None:
        host = bench.make()
        run = running(bench, host)
        with bench.database.write() as session:
            set_draining(session, bench.scene.worker_id, bench.clock.now())
        host.attend()
        eventually(lambda: [message.reason for message in run.heard] == [StopReason.DRAIN])
        obey(run)
        eventually(lambda: bench.scene.state() is JobState.QUEUED)
        assert cause(bench)[0] == "drained"
        assert (bench.scene.job().failures, bench.scene.job().losses) == (0, 0)
        assert bench.scene.place() == []
        with bench.database.write() as session:
            set_cordoned(session, bench.scene.worker_id, cordoned=False)
        host.attend()
        assert len(bench.scene.place()) == 1
        host.attend()
        assert bench.launcher.next_run().heard == []

    def test_a_job_that_was_placed_just_before_is_given_back_unstarted(self, bench: HostBench) -> None:
        host = bench.make()
        host.attend()
        bench.scene.place()
        with bench.database.write() as session:
            set_draining(session, bench.scene.worker_id, bench.clock.now())
        host.attend()
        eventually(lambda: bench.scene.state() is JobState.QUEUED)
        assert bench.launcher.idle
        assert cause(bench)[0] == "drained"


class TestLeavingByItself:
    def blind(self, bench: HostBench, host: Host, seconds: float) -> None:
        bench.ground.plant(reason="The NVIDIA driver does not answer: Unknown Error.", blind=True)
        look(bench, host)
        bench.clock.advance(seconds)
        host._leave_if_blind()

    def test_a_driver_that_is_lost_for_good_ends_an_idle_worker(self, bench: HostBench) -> None:
        host = bench.make(limits=Limits(blind_exit_s=60))
        self.blind(bench, host, 59)
        assert bench.left == []
        bench.clock.advance(1)
        host._leave_if_blind()
        host._leave_if_blind()
        assert bench.left == [BLIND]

    def test_not_while_something_runs_nor_unless_asked(self, bench: HostBench) -> None:
        host = bench.make(limits=Limits(blind_exit_s=60))
        run = running(bench, host)
        self.blind(bench, host, 5000)
        assert bench.left == []
        run.end(code=1)
        eventually(lambda: not host._keys())
        host._leave_if_blind()
        assert bench.left == [BLIND]
        self.blind(bench, bench.make("start-2"), 5000)
        assert bench.left == [BLIND]

    def test_a_schema_that_is_too_new_ends_it_before_it_registers(self, bench: HostBench) -> None:
        host = bench.make(limits=Limits(schema_wait_s=0.001))
        with bench.database.read() as session:
            mine = session.execute(text("SELECT version_num FROM alembic_version")).scalar_one()
        try:
            set_revision(bench, "9999")
            with capture_logs() as lines:
                host._beat()
        finally:
            set_revision(bench, mine)  # the database may be shared by all tests of this run
        assert bench.left == [2]
        assert host.worker_id is None
        assert [line["event"] for line in lines] == ["schema_not_usable"]


class TestBeacon:
    def beacon(self, bench: HostBench) -> dict[str, object]:
        found = read_beacon(bench.equipment.run_dir / WORKER_BEACON)
        assert found is not None
        return found

    def test_it_tells_a_health_check_how_the_worker_is(self, bench: HostBench) -> None:
        host = bench.make()
        host.start()
        assert host.registered.wait(20)
        eventually(lambda: Path(bench.equipment.run_dir / WORKER_BEACON).exists())
        eventually(lambda: self.beacon(bench)["registered"] is True)
        now = bench.clock.boot_ns()
        assert self.beacon(bench) == {
            "at_boot_ns": now,
            "instance": "start-1",
            "registered": True,
            "inventory_ok": True,
            "inventory_at_boot_ns": now,
            "reason": None,
        }
        json.dumps(self.beacon(bench))

    def test_a_blind_host_says_that_it_is(self, bench: HostBench) -> None:
        host = bench.make()
        bench.ground.plant(reason="The NVIDIA driver does not answer.", blind=True)
        bench.ground.surroundings.look()
        host._give_sign_of_life()
        assert self.beacon(bench)["inventory_ok"] is False
        assert self.beacon(bench)["reason"] == "The NVIDIA driver does not answer."
