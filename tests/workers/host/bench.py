"""A host whose beats the test makes by hand, over a real database and a launcher whose trainers are the test."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from app.fleet.models import Device, Worker
from app.fleet.registry import DeviceFacts, WorkerFacts
from tests.fakes import FakeClock
from tests.jobs.placing import Scene
from tests.workers.fake_launcher import FakeLauncher, FakeRun
from tests.workers.outage import BreakableDatabase
from tests.workers.supervisor.bench import started
from workers.equipment import Equipment
from workers.host import Host, Rhythm

RHYTHM = Rhythm(heartbeat_s=5, lease_s=60, margin_s=10)
SURVIVES_NS = 50_000_000_000


@dataclass
class HostBench:
    """`hosts` are all that were made; the first is called `host`."""

    scene: Scene
    database: BreakableDatabase
    clock: FakeClock
    launcher: FakeLauncher
    equipment: Equipment
    hosts: list[Host]
    deposed: list[str]

    def make(self, instance: str = "start-1", *, devices: int = 2, **changes: object) -> Host:
        facts = WorkerFacts(
            host_id="host-a",
            host_name="box",
            instance=instance,
            boot_id="boot-1",
            version="1",
            frameworks={"torch": {"version": "2.13.0", "interpreter": "/opt/torch/bin/python"}},
        )
        host = Host(
            facts,
            [DeviceFacts(id=f"host-a-{n}", kind="cuda", name="Card", position=n) for n in range(devices)],
            replace(self.equipment, **changes),  # type: ignore[arg-type] # any field
            replace(RHYTHM, heartbeat_s=3600),
            lambda: self.deposed.append(instance),
        )
        self.hosts.append(host)
        return host

    def place_and_run(self, host: Host) -> FakeRun:
        """A run that is up, of the job that waits."""
        self.scene.place()
        host.attend()
        run = self.launcher.next_run()
        run.says(started())
        return run

    def device(self, number: int = 0) -> Device:
        with self.database.read() as session:
            return session.get_one(Device, f"host-a-{number}")

    def worker(self) -> Worker:
        with self.database.read() as session:
            return session.get_one(Worker, self.scene.worker_id)

    def work_dirs(self) -> list[Path]:
        folder = self.equipment.run_dir / "work"
        return list(folder.iterdir()) if folder.is_dir() else []


Make = Callable[..., Host]
