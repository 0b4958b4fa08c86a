"""The job that is asked."""

import pytest

from app.db import Database
from tests.fakes import FakeClock
from tests.predictions.asking import Asker, make_asker


@pytest.fixture
def asker(database: Database, clock: FakeClock) -> Asker:
    return make_asker(database, clock)
