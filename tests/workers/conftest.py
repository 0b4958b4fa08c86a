"""What the tests of a worker's parts share."""

from collections.abc import Iterator

import pytest

from tests.fakes import FakeClock
from tests.workers.outage import BreakableDatabase


@pytest.fixture
def breakable(database_url: str, clock: FakeClock) -> Iterator[BreakableDatabase]:
    """The database of the test, through a door that can be shut."""
    database = BreakableDatabase(database_url, clock)
    try:
        yield database
    finally:
        database.dispose()
