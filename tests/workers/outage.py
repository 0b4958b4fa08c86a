"""A real database whose door can be shut, and whose answer can be lost after the commit."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy.orm import Session

from app.clock import Clock
from app.db import Database, DatabaseDown


class BreakableDatabase(Database):
    """`down` refuses every transaction; `lose_answers` commits that many writes and then claims that it did not.

    `keep_answers` is how many answers still arrive before the first is lost. `during_write` is called inside a write.
    """

    def __init__(self, url: str, clock: Clock) -> None:
        super().__init__(url, clock=clock, synchronous="normal")
        self.down = False
        self.lose_answers = 0
        self.keep_answers = 0
        self.during_write: Callable[[], object] = bool
        self.refused = 0

    @contextmanager
    def read(self) -> Iterator[Session]:
        self._answer()
        with super().read() as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        self._answer()
        with super().write() as session:
            self.during_write()
            yield session
        if self.lose_answers and self.keep_answers:
            self.keep_answers -= 1
        elif self.lose_answers:
            self.lose_answers -= 1
            raise DatabaseDown("The connection was lost after the commit.")

    def _answer(self) -> None:
        if self.down:
            self.refused += 1
            raise DatabaseDown("The database is down for this test.")
