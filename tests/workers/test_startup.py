"""What a worker looks at before it offers its host. Users of their own for trainers: tests/workers/users."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.fleet.condition import Condition
from app.settings import InvalidSettings, Settings
from tests.workers.users.conftest import open_folder
from workers import privileges, startup
from workers.startup import probe, storage_of, trainer_users

ROOT = Path(__file__).parents[2]
NOBODY = 65_534

# As an ordinary user: root may write everywhere. What is needed is imported before, since ours may lie in root's home.
AS_A_USER = f"""
import json, os, sys, tempfile
from pathlib import Path
from app.settings import Settings
from workers.startup import probe
tempfile.TemporaryFile().close()
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
    os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
settings = Settings(disk_reserve_bytes=0, **json.loads(sys.argv[1]))
print(json.dumps([os.geteuid(), probe(settings, many_processes=False).as_json()]))
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that every user may pass through."""
    with open_folder() as path:
        path.chmod(0o755)
        yield path


def as_a_user(**settings: object) -> tuple[int, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", AS_A_USER, json.dumps(settings, default=str)],
        check=True,
        capture_output=True,
        cwd=ROOT,
        timeout=60,
    )
    uid, condition = json.loads(done.stdout)
    return uid, condition


def codes(condition: Condition) -> list[str]:
    return [blocker.code for blocker in condition.blockers]


class TestFolders:
    def test_those_that_can_be_written_are_no_matter(self, tmp_path: Path) -> None:
        condition = probe(Settings(home=tmp_path, disk_reserve_bytes=0), many_processes=False)

        assert condition.blockers == ()
        assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["work"]
        assert list((tmp_path / "storage").iterdir()) == []

    @pytest.mark.parametrize(
        ("setting", "role"),
        [
            ("storage_url", "storage folder (TRAINSHED_STORAGE_URL)"),
            ("run_dir", "run folder (TRAINSHED_RUN_DIR)"),
        ],
    )
    def test_one_that_cannot_keeps_jobs_away_and_says_which_and_as_whom(
        self, folder: Path, setting: str, role: str
    ) -> None:
        # Case C68.
        home, closed = folder / "home", folder / "closed"
        home.mkdir()
        home.chmod(0o777)
        closed.mkdir(mode=0o555)
        uid, found = as_a_user(home=home, **{setting: f"file://{closed}" if setting == "storage_url" else closed})
        first = found["blockers"][0]

        assert first["code"] == "not_writable"
        assert f"The worker's {role} '{closed}' cannot be written by user {uid}: Permission denied." in first["message"]

    def test_storage_elsewhere_is_not_looked_for_on_this_disk(self, tmp_path: Path) -> None:
        settings = Settings(home=tmp_path, storage_url="s3://bucket/prefix", disk_reserve_bytes=0)
        assert probe(settings, many_processes=False).blockers == ()


class TestStorage:
    def test_one_that_can_be_used_is_made(self, tmp_path: Path) -> None:
        storage_of(Settings(home=tmp_path))
        assert (tmp_path / "storage").is_dir()

    def test_folder_that_cannot_be_made_is_named_with_the_user(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(InvalidSettings) as caught:
            storage_of(Settings(home=tmp_path, storage_url=f"file://{tmp_path}/file/storage"))

        assert f"'file://{tmp_path}/file/storage' cannot be used by user {os.geteuid()}" in str(caught.value)
        assert "storage folder (TRAINSHED_STORAGE_URL)" in str(caught.value)


class TestDisk:
    def test_room_is_that_of_the_disk(self, tmp_path: Path) -> None:
        condition = probe(Settings(home=tmp_path), many_processes=False)
        facts = os.statvfs(tmp_path)

        assert condition.disk_total_bytes == facts.f_blocks * facts.f_frsize
        assert condition.disk_free_bytes is not None
        assert 0 < condition.disk_free_bytes <= condition.disk_total_bytes

    def test_less_than_the_reserve_keeps_jobs_away(self, tmp_path: Path) -> None:
        condition = probe(Settings(home=tmp_path, disk_reserve_bytes=2**60), many_processes=False)

        assert codes(condition) == ["disk_reserve"]
        assert "less than the reserve of 1073741824.0 GiB (TRAINSHED_DISK_RESERVE_BYTES)" in str(condition.blocked)

    def test_as_much_as_the_reserve_is_enough(self, tmp_path: Path) -> None:
        assert codes(probe(Settings(home=tmp_path, disk_reserve_bytes=0), many_processes=False)) == []

    def test_disk_without_room_for_files_keeps_jobs_away(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        # statvfs(3): f_files is all inodes, f_favail those that are left; a disk without a fixed number says 0.
        real = os.statvfs

        def full(path: Path) -> os.statvfs_result:
            return os.statvfs_result([*real(path)[:5], 1_000_000, 3, 3, *real(path)[8:10]])

        monkeypatch.setattr(os, "statvfs", full)
        condition = probe(Settings(home=tmp_path, disk_reserve_bytes=0), many_processes=False)
        assert codes(condition) == ["no_inodes"]


class TestRoots:
    def test_each_says_whether_it_can_be_read(self, tmp_path: Path) -> None:
        (tmp_path / "scans" / "2025").mkdir(parents=True)
        roots = {"scans": tmp_path / "scans", "gone": tmp_path / "gone"}
        found = probe(Settings(home=tmp_path, data_roots=roots), many_processes=False).roots

        assert (found["scans"].ok, found["scans"].problem) == (True, None)
        assert not found["gone"].ok
        assert found["gone"].problem == f"The worker's user {os.geteuid()} cannot read it: No such file or directory."


class TestUsersOfTrainers:
    def test_there_are_none_unless_they_are_asked_for(self, tmp_path: Path) -> None:
        assert trainer_users(Settings(home=tmp_path)) is None

    def test_an_ordinary_user_is_told_what_is_missing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(startup, "missing", lambda: privileges.missing(bits=0))
        with pytest.raises(InvalidSettings) as caught:
            trainer_users(Settings(home=tmp_path, trainer_uids="20000-20255"))

        assert "lacks the capabilities CHOWN, KILL, SETGID, SETUID" in str(caught.value)
        assert f"user {os.geteuid()}" in str(caught.value)
        assert "TRAINSHED_TRAINER_UIDS" in str(caught.value)

    def test_somebodys_uid_is_refused_with_the_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(startup, "missing", list)
        with pytest.raises(InvalidSettings, match=r"holds user 65534, which is nobody\."):
            trainer_users(Settings(home=tmp_path, trainer_uids="65500-65600"))

    def test_folder_that_is_closed_and_not_ours_is_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        closed = tmp_path / "closed"
        home = closed / "home"
        home.mkdir(parents=True)
        closed.chmod(0o700)
        monkeypatch.setattr(startup, "missing", list)
        before = os.umask(0o022)
        try:
            with pytest.raises(InvalidSettings, match=rf"'{closed}' is closed to other users"):
                trainer_users(Settings(home=home, trainer_uids="20000-20255"))
        finally:
            os.umask(before)
