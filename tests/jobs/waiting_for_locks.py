"""Two transactions of PostgreSQL that meet at a chosen moment, without sleeping."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import text

from app.db import Database

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


def wait_until_blocked(database: Database) -> None:
    """Return when some transaction of this database waits for a lock."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with database.read() as session:
            if session.execute(text(_WAITING)).scalar_one():
                return
        time.sleep(0.01)
    raise AssertionError("nobody waits for a lock")


class Meanwhile:
    """What another thread does; `error` is what it ended with."""

    def __init__(self, work: Callable[[], object]) -> None:
        self._work = work
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - handed to the test
            self.error = error

    @contextmanager
    def running(self, database: Database) -> Iterator[None]:
        """Runs beside the block, which begins when the other waits for a lock, and is over after it."""
        self._thread.start()
        try:
            wait_until_blocked(database)
            yield
        finally:
            self._thread.join(60)
