"""Fixtures of retention's tests."""

from pathlib import Path

import pytest

from app.db import Database
from app.storage import LocalStorage
from tests.retention.history import History


@pytest.fixture
def history(database: Database, tmp_path: Path) -> History:
    return History(database, LocalStorage(tmp_path / "storage"), tmp_path)
