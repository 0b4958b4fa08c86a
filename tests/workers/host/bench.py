"""A host whose beats the test makes by hand, over a real database and a launcher whose trainers are the test."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from app.fleet.models import Device, Worker
from app.fleet.registry import WorkerFacts
from app.fleet.repository import DeviceView, HostView, fleet
from tests.fakes import FakeClock
from tests.jobs.placing import TIMES, Scene
from tests.workers.fake_launcher import FakeLauncher, FakeRun
from tests.workers.inventory.planted import NEVER_S, Ground, cards, ground
from tests.workers.outage import BreakableDatabase
from tests.workers.supervisor.bench import started
from workers.equipment import Equipment
from workers.host import REPLACED, Host, Limits, Rhythm

RHYTHM = Rhythm(heartbeat_s=5, lease_s=60, margin_s=10)
SURVIVES_NS = 50_000_000_000


@dataclass
class HostBench:
    """`hosts` are all that were made, `grounds` what each finds around it, `left` the exit codes of those that left."""

    scene: Scene
    database: BreakableDatabase
    clock: FakeClock
    launcher: FakeLauncher
    equipment: Equipment
    hosts: list[Host]
    deposed: list[str]
    grounds: list[Ground] = field(default_factory=list)
    left: list[int] = field(default_factory=list)

    def make(
        self,
        instance: str = "start-1",
        *,
        devices: int = 2,
        limits: Limits | None = None,
        interval_s: float = NEVER_S,
        **changes: object,
    ) -> Host:
        """A host with that many cards, which looks at them each `interval_s` once it is started."""
        facts = WorkerFacts(
            host_id="host-a",
            host_name="box",
            instance=instance,
            boot_id="boot-1",
            version="1",
            frameworks={"torch": {"version": "2.13.0", "interpreter": "/opt/torch/bin/python"}},
        )
        here = ground(self.clock, *cards(devices), interval_s=interval_s)
        host = Host(
            facts,
            here.surroundings,
            replace(self.equipment, **changes),  # type: ignore[arg-type] # any field
            replace(RHYTHM, heartbeat_s=3600),
            lambda code: self._left(instance, code),
            limits,
        )
        self.hosts.append(host)
        self.grounds.append(here)
        return host

    def _left(self, instance: str, code: int) -> None:
        self.left.append(code)
        if code == REPLACED:
            self.deposed.append(instance)

    @property
    def ground(self) -> Ground:
        """What the newest host finds around it."""
        return self.grounds[-1]

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

    def view(self, number: int = 0) -> DeviceView:
        """The device as the scheduler and the API see it."""
        return next(device for device in self.host_view().devices if device.id == f"host-a-{number}")

    def host_view(self) -> HostView:
        with self.database.read() as session:
            (host,) = fleet(session, self.clock.now(), TIMES.offline_after_s)
        return host

    def worker(self) -> Worker:
        with self.database.read() as session:
            return session.get_one(Worker, self.scene.worker_id)

    def work_dirs(self) -> list[Path]:
        folder = self.equipment.run_dir / "work"
        return list(folder.iterdir()) if folder.is_dir() else []


Make = Callable[..., Host]
