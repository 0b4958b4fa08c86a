"""Who may look into a process, and what it may do. What a change of user makes of it: tests/workers/users."""

import subprocess
import sys
from pathlib import Path

import pytest

from workers.privileges import NEEDED, missing

ROOT = Path(__file__).parents[2]
NOBODY = 65_534

# A process of the same user and with the same rights, as a trainer without a user of its own is one of the worker's.
LOOKS = f"""
import ctypes, os
from workers.privileges import hide_memory
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid({NOBODY}, {NOBODY}, {NOBODY})
    os.setresuid({NOBODY}, {NOBODY}, {NOBODY})
    ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: the change of user had hidden it
parent = os.getpid()
for change in (lambda: None, hide_memory):
    change()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(os.open(f"/proc/{{parent}}/environ", os.O_RDONLY))
            os.write(1, b"read ")
        except OSError as error:
            os.write(1, error.strerror.encode() + b" ")
        os._exit(0)
    os.waitpid(pid, 0)
"""


class TestMemory:
    def test_another_process_of_the_same_user_reads_it_until_it_is_hidden(self) -> None:
        done = subprocess.run([sys.executable, "-c", LOOKS], capture_output=True, cwd=ROOT, timeout=60, check=True)

        assert done.stdout == b"read Permission denied "

    def test_a_worker_hides_its_own_before_anything_else(self) -> None:
        # PR_GET_DUMPABLE (3), asked at the end of a worker that could not start: there is no broker in its settings.
        code = (
            "import atexit, ctypes, runpy\n"
            "atexit.register(lambda: print('dumpable', ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)))\n"
            "runpy.run_module('app.cli.processes.worker', run_name='__main__')"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT, timeout=60, check=False)

        assert b"TRAINSHED_BROKER_URL is missing" in done.stderr
        assert done.stdout == b"dumpable 0\n"


class TestCapabilities:
    @pytest.mark.parametrize(
        ("bits", "lacking"),
        [
            (0, ["CHOWN", "KILL", "SETGID", "SETUID"]),
            (0b1110_0001, []),  # linux/capability.h: 0 CHOWN, 5 KILL, 6 SETGID, 7 SETUID
            (0b1100_0001, ["KILL"]),
            (
                0b0000_1110,
                ["CHOWN", "KILL", "SETGID", "SETUID"],
            ),  # DAC_OVERRIDE, FOWNER: others
        ],
    )
    def test_what_is_missing_is_named(self, bits: int, lacking: list[str]) -> None:
        assert missing(bits=bits) == lacking

    def test_none_is_needed_that_reads_others_files_or_memory(self) -> None:
        assert NEEDED.keys().isdisjoint({"DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "SYS_PTRACE", "SYS_ADMIN"})
