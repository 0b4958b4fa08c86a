"""How many processes there may be: control groups as files of a folder, threads of processes that are really there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workers.process_counts import allowance, container_limit, tasks_of


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class TestContainerLimit:
    def test_a_container_sees_its_own_group_as_the_root(self, tmp_path: Path) -> None:
        write(tmp_path / "pids.max", "512\n")
        write(tmp_path / "own", "0::/\n")

        assert container_limit(str(tmp_path), str(tmp_path / "own")) == 512

    def test_the_least_of_all_groups_above_counts(self, tmp_path: Path) -> None:
        write(tmp_path / "user.slice/pids.max", "300\n")
        write(tmp_path / "user.slice/job.scope/pids.max", "max\n")
        write(tmp_path / "own", "0::/user.slice/job.scope\n")

        assert container_limit(str(tmp_path), str(tmp_path / "own")) == 300

    def test_first_version_of_control_groups(self, tmp_path: Path) -> None:
        write(tmp_path / "pids/docker/abc/pids.max", "100\n")
        write(tmp_path / "own", "9:cpu,cpuacct:/\n8:pids:/docker/abc\n0::/\n")

        assert container_limit(str(tmp_path), str(tmp_path / "own")) == 100

    def test_none_is_said(self, tmp_path: Path) -> None:
        assert container_limit(str(tmp_path), str(tmp_path / "own")) is None


class TestAllowance:
    @pytest.mark.parametrize(("wanted", "most", "given"), [(1024, 512, 256), (100, 512, 100), (10, 1, 1)])
    def test_is_no_more_than_half_of_the_containers(self, wanted: int, most: int, given: int) -> None:
        assert allowance(wanted, most) == given


class TestTasks:
    def test_threads_count(self) -> None:
        code = (
            "import os, sys, threading\n"
            "for _ in range(5): threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
            "print('up', flush=True)\nsys.stdin.read()\nos._exit(0)"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            threads = len(list(Path(f"/proc/{child.pid}/task").iterdir()))

            found = tasks_of(os.getuid())

            assert threads == 6
            assert found >= threads + len(list(Path("/proc/self/task").iterdir()))
            child.communicate()

    def test_nobody_has_none(self) -> None:
        assert tasks_of(4_000_000) == 0
