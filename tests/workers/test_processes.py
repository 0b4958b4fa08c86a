"""Which processes run as a user. That they are ended: tests/workers/users, since only root may make some."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workers.processes import kill_user, processes_of
from workers.trainer_user import TrainerUsers, given

NOBODYS = 1_999_999_999


class TestProcessesOf:
    def test_this_one_is_among_those_of_its_user(self) -> None:
        assert os.getpid() in processes_of(os.geteuid())

    def test_one_that_has_ended_is_not_although_nobody_has_reaped_it(self) -> None:
        with subprocess.Popen([sys.executable, "-c", ""]) as process:
            os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

            assert Path(f"/proc/{process.pid}").exists()
            assert process.pid not in processes_of(os.geteuid())

    def test_user_of_nobody_has_none(self) -> None:
        assert processes_of(NOBODYS) == []


class TestKillUser:
    @pytest.mark.parametrize("uid", [0, os.geteuid()])
    def test_root_and_our_own_user_are_never_meant(self, uid: int) -> None:
        with pytest.raises(ValueError, match="must not be killed"):
            kill_user(uid)

    def test_nobody_there_is_no_error(self) -> None:
        assert kill_user(NOBODYS, wait_ms=1_000) == []


class TestNotes:
    def test_each_tells_the_locks_of_the_attempt_that_has_the_user(self, tmp_path: Path) -> None:
        users = TrainerUsers(range(NOBODYS, NOBODYS + 2), tmp_path)
        users.take(["job-a.lock", "dev-b.lock"])
        users.take(["job-c.lock"])

        assert list(given(tmp_path)) == [(NOBODYS, ["job-a.lock", "dev-b.lock"]), (NOBODYS + 1, ["job-c.lock"])]

    def test_files_that_are_no_notes_are_passed_over(self, tmp_path: Path) -> None:
        for name in ("user-", "user-x", "user-0", f"user-{os.geteuid()}", "user-1.lock", "job-1.lock"):
            (tmp_path / name).touch()

        assert list(given(tmp_path)) == []

    def test_work_folders_lie_beside_them(self, tmp_path: Path) -> None:
        assert TrainerUsers(range(NOBODYS, NOBODYS + 1), tmp_path / "locks").work == tmp_path / "work"
