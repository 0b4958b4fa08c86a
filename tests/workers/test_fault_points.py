"""Named places where a test may kill a process."""

import os
import signal
import subprocess
import sys

import pytest

from workers.fault_points import NAMES, VARIABLE, point

SCRIPT = """
from workers.fault_points import point
for turn in range(4):
    point("checkpoint.begin")
    point("checkpoint.half_written")
    print(turn, flush=True)
"""


def run(value: str) -> tuple[int, int]:
    """Return how often the script came by, and its status."""
    environment = {**os.environ, VARIABLE: value}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, check=False)
    return len(done.stdout.split()), done.returncode


class TestPoint:
    def test_does_nothing_unless_it_is_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv(VARIABLE, raising=False)

        for name in NAMES:
            point(name)

    @pytest.mark.parametrize(
        ("value", "turns"),
        [("checkpoint.half_written", 0), ("checkpoint.half_written:1", 0), ("checkpoint.begin:3", 2)],
    )
    def test_kills_at_the_asked_pass(self, value: str, turns: int) -> None:
        assert run(value) == (turns, -signal.SIGKILL)

    @pytest.mark.parametrize("value", ["checkpoint.stored", "checkpoint.begin:9", "checkpoint"])
    def test_other_places_go_on(self, value: str) -> None:
        assert run(value) == (4, 0)
