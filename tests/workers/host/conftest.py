"""The bench of a host, which leaves nothing running behind a test."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.db import Database
from tests.fakes import FakeClock
from tests.jobs.placing import make_scene
from tests.workers.fake_launcher import FakeLauncher
from tests.workers.host.bench import HostBench
from tests.workers.outage import BreakableDatabase
from tests.workers.supervisor.bench import make_equipment
from workers.stopping import StopReason


@pytest.fixture
def bench(database: Database, breakable: BreakableDatabase, clock: FakeClock, tmp_path: Path) -> Iterator[HostBench]:
    launcher = FakeLauncher(clock)
    equipment = replace(make_equipment(breakable, clock, launcher, tmp_path), stop_grace_s=0.2)
    bench = HostBench(make_scene(database, clock, devices=2), breakable, clock, launcher, equipment, [], [])
    yield bench
    breakable.down = False
    breakable.lose_answers = 0
    for host in bench.hosts:
        for supervisor in list(host._attempts.values()):
            supervisor.stop(StopReason.FENCED)  # without a grace: the clock of the test stands still
        host.stop()
