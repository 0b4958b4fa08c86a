"""Starts Python as the exports do: a clean environment, one thread, no devices."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from workers.environment import framework_environment, trainer_environment

ROOT = Path(__file__).parents[3]


def run_script(name: str, arguments: Iterable[str | Path], home: Path) -> None:
    """Run a script of this folder to its end; a failure shows the end of what it said."""
    environment = {
        **trainer_environment([], 1, home, os.environ),
        **framework_environment("tensorflow"),
        "PYTHONPATH": str(ROOT),
    }
    command = [sys.executable, str(Path(__file__).with_name(name)), *map(str, arguments)]
    done = subprocess.run(command, env=environment, cwd=home, check=False, timeout=240, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
