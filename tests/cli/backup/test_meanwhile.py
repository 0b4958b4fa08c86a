"""A backup of a service that works meanwhile, one of an older version, and how much memory it takes."""

import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import orjson
import pytest
from sqlalchemy import delete

from app.artifacts.models import Artifact
from app.checkpoints import repository as checkpoints
from app.cli.backup.rows import reflected
from app.jobs.models import Job
from app.migrations_runner import upgrade_within
from app.storage import LocalStorage
from app.storage.keys import artifact_key
from tests.cli.backup.service import (
    Service,
    all_rows,
    artifact_key_of,
    bring_back,
    opened,
    store_checkpoint,
)
from tests.cli.backup.test_damage import rewritten

pytestmark = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)

MIB = 1024 * 1024


class Busy(LocalStorage):
    """A storage that calls `before` once, before the first file is read."""

    def __init__(self, root: Path, before: Callable[[], None]) -> None:
        super().__init__(root)
        self._before = [before]

    def open(self, key: str) -> BinaryIO:
        while self._before:
            self._before.pop()()
        return super().open(key)


class TestMeanwhile:
    def test_checkpoints_that_were_dropped_on_the_way_are_replaced_by_newer_ones(
        self, service: Service, file: Path, empty_url: str, other_storage: LocalStorage, tmp_path: Path
    ) -> None:
        def train() -> None:
            with service.database.write() as session:
                for step in (30, 40):
                    store_checkpoint(service, session, step)

        made = service.backup(file, Busy(tmp_path / "storage", train))
        assert {key.split("/")[3] for key in made.copied.missing} == {"10", "20"}
        restored = bring_back(file, empty_url, other_storage)
        assert restored.settled.missing == []
        with opened(empty_url) as database, database.read() as session:
            newest = checkpoints.newest(session, service.running)
            assert [row.step for row in newest] == [40, 30]
            assert all(other_storage.exists(key) for row in newest for key in row.keys)

    def test_a_later_attempt_s_checkpoints_are_not_taken(
        self, service: Service, file: Path, empty_url: str, other_storage: LocalStorage, tmp_path: Path
    ) -> None:
        # The restored job has made one attempt; what a second one reached would be taken for a third one's past.
        def train() -> None:
            with service.database.write() as session:
                for step in (30, 40):
                    store_checkpoint(service, session, step)
                for row in checkpoints.list_checkpoints(session, service.running):
                    row.attempt = 2

        service.backup(file, Busy(tmp_path / "storage", train))
        bring_back(file, empty_url, other_storage)
        with opened(empty_url) as database, database.read() as session:
            assert checkpoints.newest(session, service.running) == []

    def test_a_file_that_the_storage_has_lost_is_told_and_the_rest_is_kept(
        self, service: Service, file: Path, empty_url: str, other_storage: LocalStorage
    ) -> None:
        lost = artifact_key_of(service)
        service.storage.delete(lost)
        assert service.backup(file).copied.missing == [lost]
        assert bring_back(file, empty_url, other_storage).settled.missing == [lost]
        assert len(other_storage.list()) == 6

    def test_a_job_that_was_deleted_on_the_way_leaves_no_claim(
        self, service: Service, file: Path, tmp_path: Path
    ) -> None:
        def remove() -> None:
            with service.database.write() as session:
                session.execute(delete(Job).where(Job.id == service.jobs["done"]))

        made = service.backup(file, Busy(tmp_path / "storage", remove))
        assert (made.rows["jobs"], made.copied.missing) == (3, [])


def columns_of(url: str, revision: str) -> dict[str, list[str]]:
    """The columns of our tables at an older revision."""
    with opened(url) as database, database.write() as session:
        upgrade_within(session, revision)
        return {name: list(table.columns.keys()) for name, table in reflected(session.connection()).items()}


class TestOlderVersion:
    def test_a_backup_of_an_older_schema_is_migrated(
        self, service: Service, file: Path, other_url: str, other_storage: LocalStorage, tmp_path: Path
    ) -> None:
        older = columns_of(f"sqlite:///{tmp_path / 'older.db'}", "0002")

        def as_before(members: dict[str, bytes]) -> None:
            manifest = orjson.loads(members["manifest.json"])
            members["manifest.json"] = orjson.dumps({**manifest, "schema": "0002"})
            for member in [name for name in members if name.startswith("tables/")]:
                table = member.removeprefix("tables/").removesuffix(".jsonl")
                names, *rows = map(orjson.loads, members.pop(member).splitlines())
                kept = [index for index, name in enumerate(names) if name in older.get(table, ())]
                if kept:
                    lines = [orjson.dumps([row[index] for index in kept]) for row in [names, *rows]]
                    members[member] = b"\n".join(lines) + b"\n"

        service.backup(file)
        restored = bring_back(rewritten(file, as_before), other_url, other_storage)
        assert restored.schema == "0002"
        assert restored.settled.requeued == [service.running]
        with opened(other_url) as database:
            rows = all_rows(database)
        assert "holds" not in older
        assert rows["holds"] == []
        assert sorted(row["state"] for row in rows["jobs"]) == ["paused", "queued", "succeeded"]
        assert {row["uri"] for row in rows["datasets"]} == {None}


class TestMemory:
    def test_it_does_not_grow_with_the_files(
        self, service: Service, file: Path, empty_url: str, other_storage: LocalStorage, tmp_path: Path
    ) -> None:
        # A file of 64 MiB goes through in pieces; holding it once would be seen.
        large = tmp_path / "large"
        with large.open("wb") as stream:
            stream.truncate(64 * MIB)
        key = artifact_key(service.jobs["done"], 1, "large.bin")
        service.storage.put(key, large)
        with service.database.write() as session:
            session.get_one(Artifact, (service.jobs["done"], "model.safetensors")).storage_key = key
        tracemalloc.start()
        try:
            service.backup(file)
            bring_back(file, empty_url, other_storage)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert file.stat().st_size > 64 * MIB
        assert peak < 24 * MIB
        shutil.rmtree(tmp_path / "other-storage")
