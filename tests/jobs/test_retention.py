"""Idempotency keys are kept for a week, and not longer."""

from datetime import timedelta

from sqlalchemy import select

from app.db import Database
from app.jobs.models import IdempotencyKey
from app.jobs.retention import KEEP_KEYS, forget_keys
from tests.fakes import START


def add_keys(database: Database, ages: list[timedelta]) -> None:
    with database.write() as session:
        for number, age in enumerate(ages):
            values = {"digest": "0" * 64, "resource_id": f"job_{number}"}
            session.add(IdempotencyKey(principal="key_1", key=str(number), created_at=START - age, **values))


def kept(database: Database) -> list[str]:
    with database.read() as session:
        return list(session.scalars(select(IdempotencyKey.key).order_by(IdempotencyKey.key)))


class TestForgetKeys:
    def test_only_those_that_are_too_old(self, database: Database) -> None:
        add_keys(database, [timedelta(0), KEEP_KEYS, KEEP_KEYS + timedelta(seconds=1), timedelta(days=900)])
        assert forget_keys(database, START) == 2
        assert kept(database) == ["0", "1"]
        assert forget_keys(database, START) == 0

    def test_many_go_in_several_transactions(self, database: Database) -> None:
        add_keys(database, [timedelta(days=8)] * 7 + [timedelta(days=1)])
        assert forget_keys(database, START, at_once=3) == 7
        assert kept(database) == ["7"]
