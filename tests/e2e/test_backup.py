"""A backup of a service at work, brought back in another home: what ran goes on from its checkpoint to its end."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.interruptions import begin, checkpoints, interruptible, went_on
from tests.e2e.stack import running_stack


def trainshed(name: str, home: Path, *arguments: str) -> Any:
    """Run `trainshed backup` or `restore` in a home; what it printed as JSON."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith("TRAINSHED_")}
    environ: Mapping[str, str] = {**ours, "TRAINSHED_HOME": str(home)}
    command = [sys.executable, "-P", "-m", f"app.cli.processes.{name}", *arguments, "--json"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class TestBackup:
    def test_a_job_that_ran_goes_on_in_the_restored_service(self, home: Path, tmp_path: Path) -> None:
        backup, other = tmp_path / "backup.tar", tmp_path / "other"
        with running_stack(home) as stack:
            running, _ = begin(stack, interruptible())
            made = trainshed("backup", home, str(backup))
            left = checkpoints(stack, running)[0]["step"]
        assert (made["rows"]["jobs"], made["missing"]) == (1, [])
        restored = trainshed("restore", other, str(backup))
        assert restored["requeued"] == [running]
        # Keys came back, but only their owners know them: here `up` finds its own where the old one stored it.
        shutil.copy(home / "client.json", other / "client.json")
        with running_stack(other) as stack:
            job = went_on(stack, running)
        first, second = job["attempts"]
        assert (first["cause"], job["losses"], job["failures"]) == (None, 0, 0)
        assert 0 < second["resumed_from_step"] <= left
