"""What a host asks at every heartbeat must not grow with what it ever ran. SQLite plans without statistics."""

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.orm import Session

from app.db import Database
from app.jobs.attempts import attention, open_attempts


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("question", [attention, open_attempts])
def test_it_begins_with_the_open_attempts(database: Database, question: Callable[[Session, str], object]) -> None:
    asked: list[tuple[str, Any]] = []

    def remember(_c: object, _cursor: object, statement: str, values: object, _context: object, _many: object) -> None:
        asked.append((statement, values))

    event.listen(database.reader, "before_cursor_execute", remember)
    with database.read() as session:
        question(session, "wrk_1")
        statement, values = asked[-1]
        plan = session.connection().exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).fetchall()
    assert plan[0][3] == "SEARCH attempts USING INDEX ix_attempts_open (ended_at=?)"
