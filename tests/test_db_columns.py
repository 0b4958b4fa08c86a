"""Times and JSON as both databases keep them."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import Dialect, Text, select, type_coerce
from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.exc import StatementError

from app.accounts.models import Project
from app.datasets.models import Dataset
from app.db import Database, JsonText, UtcDateTime
from tests.fakes import START
from tests.rows import add_dataset, add_project

DIALECTS: list[Dialect] = [
    SQLiteDialect_pysqlite(),
    PGDialect_psycopg(),  # type: ignore[no-untyped-call]  # SQLAlchemy has no annotation there
]


class TestUtcDateTime:
    def test_the_same_moment_comes_back_in_utc(self, database: Database) -> None:
        moment = datetime(2026, 1, 31, 23, 59, 59, 123456, tzinfo=timezone(timedelta(hours=5, minutes=30)))
        with database.write() as session:
            session.add(Project(id="prj_1", name="birds", created_at=moment))
        with database.read() as session:
            kept = session.scalars(select(Project.created_at)).one()
        assert kept == moment
        assert kept.tzinfo is UTC

    def test_a_naive_time_never_reaches_the_database(self, database: Database) -> None:
        naive = datetime(2026, 1, 31)  # noqa: DTZ001 - the point of the test
        with pytest.raises(StatementError, match="without a time zone"), database.write() as session:
            session.add(Project(id="prj_1", name="birds", created_at=naive))

    def test_moments_are_compared_as_moments(self, database: Database) -> None:
        with database.write() as session:
            session.add(Project(id="prj_1", name="birds", created_at=START))
        later_by_the_clock_on_the_wall = (START - timedelta(minutes=1)).astimezone(timezone(timedelta(hours=9)))
        with database.read() as session:
            assert session.scalars(select(Project.id).where(Project.created_at > later_by_the_clock_on_the_wall)).all()

    @pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
    @given(moment=st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29), timezones=st.timezones()))  # noqa: DTZ001
    def test_nothing_of_a_moment_is_lost(self, dialect: Dialect, moment: datetime) -> None:
        kind = UtcDateTime()
        sent = kind.process_bind_param(moment, dialect)
        assert sent is not None
        # SQLite gives times back without their zone.
        answered = sent.replace(tzinfo=None) if dialect.name == "sqlite" else sent
        # Compared in UTC: Python calls a time in a fold unequal to every time of another zone (PEP 495).
        assert kind.process_result_value(answered, dialect) == moment.astimezone(UTC)
        assert kind.process_bind_param(None, dialect) is kind.process_result_value(None, dialect) is None


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | FINITE | TEXT,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TEXT, children, max_size=4),
    max_leaves=12,
)


class TestJsonText:
    @given(value=JSON_VALUES)
    def test_any_json_comes_back_as_it_was(self, value: object) -> None:
        kind = JsonText()
        for dialect in DIALECTS:
            assert kind.process_result_value(kind.process_bind_param(value, dialect), dialect) == value

    def test_in_both_databases_and_as_text(self, database: Database) -> None:
        table = {"z": 1, "a": [1.5, "ä\0", None], "nested": {"b": True}}
        with database.write() as session:
            dataset_id = add_dataset(session, add_project(session), table=table).id
        with database.read() as session:
            assert session.get_one(Dataset, dataset_id).table == table
            stored = session.scalar(select(type_coerce(Dataset.table, Text)))
        # Keys keep their order, which a binary JSON type would lose; NUL is escaped, as PostgreSQL's text needs.
        assert stored == '{"z":1,"a":[1.5,"ä\\u0000",null],"nested":{"b":true}}'
