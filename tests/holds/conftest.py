"""Fixtures of the tests of holds."""

import pytest

from app.db import Database
from tests.fakes import FakeClock
from tests.holds.bench import HoldBench, make_bench


@pytest.fixture
def bench(database: Database, clock: FakeClock) -> HoldBench:
    """One host with two cards."""
    return make_bench(database, clock)
