"""The bench, which leaves no attempt running behind a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db import Database
from app.storage import LocalStorage
from tests.fakes import FakeClock
from tests.jobs.placing import make_scene
from tests.workers.fake_launcher import FakeLauncher
from tests.workers.outage import BreakableDatabase
from tests.workers.supervisor.bench import Bench, make_equipment


@pytest.fixture
def launcher(clock: FakeClock) -> FakeLauncher:
    return FakeLauncher(clock)


@pytest.fixture
def bench(
    database: Database, breakable: BreakableDatabase, clock: FakeClock, launcher: FakeLauncher, tmp_path: Path
) -> Iterator[Bench]:
    equipment = make_equipment(breakable, clock, launcher, tmp_path)
    scene = make_scene(database, clock)
    bench = Bench(scene, breakable, clock, launcher, LocalStorage(tmp_path / "storage"), equipment)
    yield bench
    for supervisor in bench.begun:
        supervisor.abandon()
        supervisor.join(20)
