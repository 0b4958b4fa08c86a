"""One claimed attempt on a bench: real database, real storage, a launcher whose trainer is the test."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from app.broker import Bell
from app.jobs import claims, journal
from app.jobs.models import Attempt, Job
from app.jobs.states import JobState
from app.storage import LocalStorage
from tests.fakes import FakeClock
from tests.jobs.placing import TIMES, Scene
from tests.workers.fake_launcher import PID, FakeLauncher, FakeRun
from tests.workers.outage import BreakableDatabase
from workers.equipment import Equipment
from workers.exports import ExportedFile
from workers.protocol import Artifact, Done, Point, Progress, Report, Started
from workers.supervisor import Supervisor

INSTANCE = "instance-1"
UNTIL_NS = 50_000_000_000


def started(**changes: object) -> Started:
    values: dict[str, Any] = {
        "framework": "torch",
        "framework_version": "2.13.0",
        "device_kind": "cuda",
        "devices": ["host-a-0"],
        "simulated": False,
        "environment": {"CUDA_VISIBLE_DEVICES": "host-a-0"},
        "pid": PID,
        "pgid": PID,
        "threads": 1,
    }
    return Started(**(values | changes))


def report(step: int, **values: float) -> Report:
    return Report(
        epoch=step,
        step=step,
        points=[Point(name=name, step=step, epoch=step, value=value) for name, value in values.items()],
        progress=Progress(epoch=step, epochs=10, step=step, steps=10, fraction=step / 10),
    )


@dataclass
class Bench:
    """`begin` starts the supervisor of a placed attempt; `wait` waits for its end."""

    scene: Scene
    database: BreakableDatabase
    clock: FakeClock
    launcher: FakeLauncher
    storage: LocalStorage
    equipment: Equipment
    ended: list[Supervisor] = field(default_factory=list)
    begun: list[Supervisor] = field(default_factory=list)

    def claim(self) -> claims.Claim:
        placed = self.scene.place()[0]
        with self.database.write() as session:
            claim = claims.claim(
                session,
                self.scene.worker_id,
                INSTANCE,
                placed.job_id,
                placed.attempt,
                self.clock.now(),
                TIMES.lease_s,
            )
        assert claim is not None
        return claim

    def begin(self, claim: claims.Claim | None = None, *, until_ns: int = UNTIL_NS, **equipment: Any) -> Supervisor:
        supervisor = Supervisor(
            claim or self.claim(),
            replace(self.equipment, **equipment),
            self.clock.boot_ns() + until_ns,
            self.ended.append,
        )
        self.begun.append(supervisor)
        supervisor.start()
        return supervisor

    def run(self, claim: claims.Claim | None = None, **equipment: Any) -> tuple[Supervisor, FakeRun]:
        """A supervisor whose trainer is up and known to the database."""
        supervisor = self.begin(claim, **equipment)
        run = self.launcher.next_run()
        run.says(started())
        return supervisor, run

    def wait(self, supervisor: Supervisor) -> None:
        supervisor.join(20)
        assert supervisor in self.ended, "the attempt did not end"

    def succeed(self, run: FakeRun, name: str = "model.safetensors", content: bytes = b"weights") -> None:
        """Play a trainer that leaves a model and is done."""
        self.leave_file(run, name, content)
        run.says(Artifact(name=name, path=name, media_type="application/octet-stream", kind="model"))
        run.says(Done(metrics={"loss": 0.25}))
        run.end(code=0)

    def leave_file(self, run: FakeRun, name: str, content: bytes) -> Path:
        path = Path(run.request.assignment.work_dir) / name
        path.write_bytes(content)
        return path

    def job(self) -> Job:
        return self.scene.job()

    @property
    def state(self) -> JobState:
        return self.scene.state()

    def attempt(self, number: int = 1) -> Attempt:
        with self.scene.database.read() as session:
            return session.get_one(Attempt, (self.scene.job_id, number))

    def journal(self, kind: str | None = None) -> list[dict[str, Any]]:
        with self.scene.database.read() as session:
            events = journal.read(session, self.scene.job_id, 0)
        return [orjson.loads(event.text) for event in events if kind in (None, event.kind)]

    def lines(self) -> list[str]:
        return [line for entry in self.journal("log") for line in entry["lines"]]


Begin = Callable[..., Supervisor]


def no_files(*_: object, **__: object) -> list[ExportedFile]:
    """An export that makes nothing: these trainers leave no real model."""
    return []


def make_equipment(database: BreakableDatabase, clock: FakeClock, launcher: FakeLauncher, folder: Path) -> Equipment:
    return Equipment(
        database=database,
        bell=Bell(None),
        storage=LocalStorage(folder / "storage"),
        launcher=launcher,
        clock=clock,
        interpreters={"torch": Path("/opt/torch/bin/python")},
        run_dir=folder / "run",
        stop_grace_s=10.0,
        report_interval_s=0.01,
        max_log_bytes=1_000_000,
        environment={"PATH": "/usr/bin", "TRAINSHED_DATABASE_URL": "secret"},
        proof_s=0.2,
        export=no_files,
    )
