"""What a database's schema is to this code, and waiting for it (case C69)."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic.script import ScriptDirectory
from sqlalchemy import text
from structlog.testing import capture_logs

from app.db import Database
from app.migrations_runner import SchemaNotUsable, SchemaState, _config, schema_state, upgrade, wait_for_schema
from tests.fakes import FakeClock
from tests.servers import PostgresServer


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database that nobody has migrated."""
    url = f"sqlite:///{tmp_path / 'empty.db'}"
    if request.param == "postgresql":
        server: PostgresServer = request.getfixturevalue("postgres")
        name = f"schema_{request.node.name.partition('[')[0]}"[:60]
        server.execute(f"CREATE DATABASE {name}")
        url = server.url(name)
    database = Database(url)
    yield database
    database.dispose()


def state_of(database: Database) -> SchemaState:
    with database.read() as session:
        return schema_state(session)


def set_revision(database: Database, revision: str | None) -> None:
    with database.write() as session:
        session.execute(text("DELETE FROM alembic_version"))
        if revision is not None:
            session.execute(text("INSERT INTO alembic_version VALUES (:revision)"), {"revision": revision})


class TestState:
    def test_from_nothing_to_newer_than_this_code(self, empty: Database) -> None:
        assert state_of(empty) is SchemaState.ABSENT
        upgrade(empty.url)
        assert state_of(empty) is SchemaState.CURRENT
        (oldest,) = ScriptDirectory.from_config(_config()).get_bases()
        for revision, state in ((oldest, SchemaState.BEHIND), ("9999", SchemaState.AHEAD), (None, SchemaState.ABSENT)):
            set_revision(empty, revision)
            assert state_of(empty) is state

    def test_each_but_the_right_one_says_what_to_do(self) -> None:
        assert "run `trainshed migrate`" in SchemaState.ABSENT.message
        assert "run `trainshed migrate`" in SchemaState.BEHIND.message
        assert "newer than this version" in SchemaState.AHEAD.message
        assert "migrate" not in SchemaState.AHEAD.message


class Waiting:
    """Pauses of a wait: time passes, and at the `at`-th one something happens."""

    def __init__(self, clock: FakeClock, at: int = 0, happens: object = None) -> None:
        self.clock = clock
        self.at = at
        self.happens = happens
        self.pauses = 0

    def __call__(self, seconds: float) -> bool:
        self.clock.advance(seconds)
        self.pauses += 1
        if self.pauses == self.at and callable(self.happens):
            return bool(self.happens())
        return False


class TestWait:
    def test_it_goes_on_when_somebody_has_migrated_and_says_so_once(self, empty: Database) -> None:
        clock = FakeClock()
        waiting = Waiting(clock, 3, lambda: upgrade(empty.url))
        with capture_logs() as lines:
            assert wait_for_schema(empty, clock, 300, waiting)
        assert waiting.pauses == 3
        said = [line["state"] for line in lines if line["event"] == "schema_not_ready"]
        assert said == [SchemaState.ABSENT]

    def test_it_gives_up_in_the_end(self, empty: Database) -> None:
        clock = FakeClock()
        waiting = Waiting(clock)
        with pytest.raises(SchemaNotUsable, match="no tables of Trainshed yet"):
            wait_for_schema(empty, clock, 20, waiting)
        assert waiting.pauses == 20

    def test_a_newer_schema_is_not_waited_for(self, empty: Database) -> None:
        upgrade(empty.url)
        set_revision(empty, "9999")
        waiting = Waiting(FakeClock())
        with pytest.raises(SchemaNotUsable) as refused:
            wait_for_schema(empty, waiting.clock, 300, waiting)
        assert (refused.value.state, waiting.pauses) == (SchemaState.AHEAD, 0)

    def test_it_ends_when_it_is_time_to_stop(self, empty: Database) -> None:
        clock = FakeClock()
        assert not wait_for_schema(empty, clock, 300, Waiting(clock, 2, lambda: True))

    def test_a_database_that_is_away_is_waited_for_without_a_limit(self, tmp_path: Path) -> None:
        nowhere = Database(f"postgresql+psycopg://nobody@/none?host={tmp_path}")
        clock = FakeClock()
        waiting = Waiting(clock, 5, lambda: True)
        with capture_logs() as lines:
            assert not wait_for_schema(nowhere, clock, 2, waiting)
        assert [line["event"] for line in lines] == ["database_does_not_answer"]
        assert waiting.pauses == 5
        nowhere.dispose()
