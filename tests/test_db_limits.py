"""Nothing waits for the database for ever, but what is right to take long."""

import threading

import pytest
from sqlalchemy import text

from app.db import Database, DatabaseDown, unlimited
from tests.rows import add_project

ONLY_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
ONLY_POSTGRES = pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)


class TestWaiting:
    def test_no_free_connection_is_an_outage_not_a_fault(
        self, database_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("app.db._LOCK_S", 0.05)
        database = Database(database_url, pool_size=1)  # and one more when it is busy
        with database.read() as one, database.read() as two:
            one.execute(text("SELECT 1"))
            two.execute(text("SELECT 1"))
            with pytest.raises(DatabaseDown), database.read() as three:
                three.execute(text("SELECT 1"))
        with database.read() as session:
            assert session.execute(text("SELECT 1")).scalar_one() == 1
        database.dispose()

    @ONLY_SQLITE
    def test_a_turn_that_does_not_come(self, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("app.db._LOCK_S", 0.05)
        refused: list[Exception] = []

        def write() -> None:
            try:
                with database.write():
                    pass
            except DatabaseDown as error:
                refused.append(error)

        with database.write() as session:
            thread = threading.Thread(target=write)
            thread.start()
            thread.join()
            add_project(session, "first")
        assert len(refused) == 1
        with database.write() as session:
            add_project(session, "second")


@ONLY_POSTGRES
class TestPostgresql:
    def test_a_connection_whose_other_end_is_gone_is_given_up_soon(self, database: Database) -> None:
        # Source of the names: libpq's documentation of connection parameters; tcp_user_timeout is in milliseconds.
        with database.read() as session:
            driver = session.connection().connection.driver_connection
            assert driver is not None
            given = driver.info.get_parameters()
        assert (given["keepalives_idle"], given["keepalives_count"], given["tcp_user_timeout"]) == ("5", "3", "10000")

    def test_limits_can_be_lifted_for_one_transaction(self, database: Database) -> None:
        names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
        with database.write() as session:
            before = [session.execute(text(f"SHOW {name}")).scalar_one() for name in names]
            unlimited(session)
            assert [session.execute(text(f"SHOW {name}")).scalar_one() for name in names] == ["0", "0", "0"]
        assert before == ["1min", "15s", "30s"]
        with database.write() as session:
            assert [session.execute(text(f"SHOW {name}")).scalar_one() for name in names] == before
