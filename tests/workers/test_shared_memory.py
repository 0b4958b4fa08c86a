"""Case C31: a process that finds no room in shared memory dies of SIGBUS, and its job says what to do."""

import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from app.errors import Cause
from app.jobs.causes import CAUSES
from app.settings import Settings
from workers import startup
from workers.launch import Ended
from workers.outcome import Watched, ending_of

GIB = 1024**3
TOUCH_A_MISSING_PAGE = """
import mmap, tempfile
file = tempfile.TemporaryFile()
file.truncate(mmap.PAGESIZE)
page = mmap.mmap(file.fileno(), mmap.PAGESIZE)
file.truncate(0)
page[0] = 1
"""


class Usage(NamedTuple):
    total: int
    used: int
    free: int


class TestSigbus:
    def test_a_process_that_dies_of_it_failed_for_shared_memory(self) -> None:
        code = subprocess.run([sys.executable, "-c", TOUCH_A_MISSING_PAGE], check=False).returncode
        ending = ending_of(Watched(end=Ended(code=None, signal=-code, max_rss_bytes=0, survivors=False)))

        assert -code == signal.SIGBUS
        assert (ending.succeeded, ending.cause) == (False, Cause.SHARED_MEMORY)
        assert ending.detail == "It ended by signal SIGBUS."

    def test_the_job_names_the_remedy(self) -> None:
        assert "/dev/shm" in CAUSES[Cause.SHARED_MEMORY].sentence  # noqa: S108 - the words of a sentence


class TestStart:
    """Docker gives a container 64 MiB of it unless it is told otherwise (docker run, --shm-size)."""

    @pytest.mark.parametrize(
        ("size", "devices", "codes"),
        [
            (64 * 1024**2, "cuda", ["small_shared_memory"]),
            (64 * 1024**2, "cpu", []),
            (GIB - 1, "cuda", ["small_shared_memory"]),
            (GIB, "cuda", []),
        ],
    )
    def test_too_little_is_said_where_jobs_of_several_processes_may_run(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, size: int, devices: str, codes: list[str]
    ) -> None:
        usage = shutil.disk_usage
        small = Usage(size, 0, size)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: small if path == startup.SHARED_MEMORY else usage(path))
        found = startup.probe(Settings(home=tmp_path, disk_reserve_bytes=0), many_processes=devices != "cpu")

        assert found.shm_bytes == size
        assert [problem.code for problem in found.problems] == codes
        assert found.blockers == ()
