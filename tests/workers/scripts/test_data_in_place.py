"""Data of a script that stay where they are: used only while they are what was registered."""

import hashlib
from pathlib import Path

import pytest

from app.errors import Cause
from tests.workers.scripts.hosted import script

TABLE = b"a,b\n1,2\n"
DIGEST = hashlib.sha256(TABLE).hexdigest()
READ = "import os; print(open(os.environ['TRAINSHED_DATA_SCANS']).readline())"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "scans.csv"
    path.write_bytes(TABLE)
    return path


def test_file_as_it_was_registered_is_used(tmp_path: Path, table: Path) -> None:
    found = script(tmp_path / "work", READ, inputs={"scans": str(table)}, digests={"scans": DIGEST})

    assert found.log.startswith("a,b\n")


def test_changed_file_is_not_used(tmp_path: Path, table: Path) -> None:
    table.write_bytes(TABLE + b"3,4\n")

    failed = script(tmp_path / "work", READ, inputs={"scans": str(table)}, digests={"scans": DIGEST}).failed

    assert failed.cause is Cause.INVALID_DATA
    assert "'scans' has changed in its place" in failed.message


def test_file_that_is_gone_is_named_without_its_path(tmp_path: Path, table: Path) -> None:
    table.unlink()

    failed = script(tmp_path / "work", READ, inputs={"scans": str(table)}, digests={"scans": DIGEST}).failed

    assert failed.cause is Cause.INVALID_DATA
    assert "'scans' cannot be read in its place: No such file or directory." in failed.message
    assert str(tmp_path) not in failed.message
