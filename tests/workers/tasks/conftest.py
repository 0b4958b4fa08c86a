"""The bench of a worker's tasks, whose threads end with the test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.db import Database
from tests.fakes import FakeClock
from tests.predictions.asking import Asker, make_asker
from tests.workers.outage import BreakableDatabase
from tests.workers.tasks.bench import Bench, make_bench


@pytest.fixture
def asker(database: Database, clock: FakeClock) -> Asker:
    return make_asker(database, clock)


@pytest.fixture
def bench(asker: Asker, breakable: BreakableDatabase, tmp_path: Path) -> Iterator[Bench]:
    bench = make_bench(asker, breakable, tmp_path)
    yield bench
    breakable.down = False
    bench.predictor.gate.set()
    bench.tasks.stop()
