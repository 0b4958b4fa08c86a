"""A worker that starts one attempt, says who runs, and is killed: `python -m tests.workers.launcher.worker DIR`."""

import os
import signal
import sys
from pathlib import Path

from tests.workers.launcher.attempt import FAR_NS, ROOT, Attempt, assignment, boot_ns, simulated
from workers.launch import ColdLauncher, LaunchRequest, trainer_environment


def main(directory: Path) -> None:
    devices = [simulated("GPU-0")]
    request = LaunchRequest(
        interpreter=Path(sys.executable),
        environment=trainer_environment(devices, 1, directory, os.environ) | {"PYTHONPATH": str(ROOT)},
        assignment=assignment(directory / "work", devices),
        lock_dir=directory / "locks",
        until_boot_ns=boot_ns() + FAR_NS,
        entry="tests.workers.launcher.entry_points:run",
    )
    run = ColdLauncher().start(request)
    trainer = Attempt(run, request).line()["pid"]
    sys.stdout.write(f"{run._process.pid} {trainer}\n")
    sys.stdout.flush()
    while True:
        signal.pause()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
