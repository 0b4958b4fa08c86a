"""Scripts with users of their own, under a worker that is root with the four capabilities of its container alone.

Run by `confined`, as `scenarios` are. The worker may make no network namespace itself: its trainers' users must.
"""

import io
import json
import os
import sys
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.workers.launcher.attempt import FAR_NS, Attempt, boot_ns
from tests.workers.users.scenarios import PACKAGES, Worker, owner, processes, uids
from workers.environment import trainer_environment
from workers.launch import ColdLauncher, LaunchRequest
from workers.launch_port import SCRIPT_HOST
from workers.protocol import ArchiveLimits, Device, ScriptAssignment, ScriptLimits
from workers.sandbox import Sandbox

MOST_PROCESSES = 40
LIMITS = ScriptLimits(
    archive=ArchiveLimits(entries=10, total_bytes=10**6, file_bytes=10**6, ratio=200),
    max_output_bytes=10**6,
    max_output_files=10,
)


def run(folder: Path, source: str) -> dict[str, Any]:
    """Run a script to its end: its messages, its output, how it ended, and what is left."""
    worker = Worker(folder)
    work_dir = worker.work_dir("job_1")
    work_dir.mkdir(mode=0o700)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("train.py", source)
    (work_dir / "bundle.zip").write_bytes(packed.getvalue())
    devices = [Device(id="cpu-0@host", kind="cpu", name="CPU")]
    request = LaunchRequest(
        interpreter=Path(sys.executable),
        environment=trainer_environment(devices, 1, work_dir, os.environ) | PACKAGES,
        assignment=ScriptAssignment(
            job_id="job_1",
            attempt=1,
            framework="python",
            interpreter=sys.executable,
            command=["python", "train.py"],
            processes="one",
            variables={},
            devices=devices,
            threads=1,
            work_dir=str(work_dir),
            seed=0,
            bundle=str(work_dir / "bundle.zip"),
            bundle_format="zip",
            limits=LIMITS,
        ),
        lock_dir=worker.run_dir / "locks",
        until_boot_ns=boot_ns() + FAR_NS,
        entry=SCRIPT_HOST,
        sandbox=Sandbox(network=False, needs_loopback=False, max_file_bytes=10**9, max_processes=MOST_PROCESSES),
    )
    with closing(ColdLauncher(close_ms=1_000, users=worker.users).start(request)) as running:
        attempt = Attempt(running, request)
        messages: list[dict[str, Any]] = []
        while not messages or messages[-1]["type"] not in ("done", "failed"):
            messages.append(attempt.line())
        end = attempt.ended()
        output = attempt.all_output().decode()
    return {
        "messages": messages,
        "output": output.splitlines(),
        "code": end.code,
        "survivors": end.survivors,
        "left": processes(),
        "uid": uids()[0],
        "files": {str(path.relative_to(work_dir)): owner(path) for path in sorted(work_dir.rglob("*"))},
    }


def script_that_tells(folder: Path) -> object:
    secret = folder / "secret"
    secret.write_text("a secret of the worker")
    secret.chmod(0o600)
    return run(
        folder,
        f"""
import json, os, socket
def tried(work):
    try:
        return work() and None
    except OSError as error:
        return type(error).__name__
facts = {{
    "users": os.getresuid(),
    "secret": tried(lambda: open({str(secret)!r}).read()),
    "network": tried(lambda: socket.create_connection(("192.0.2.1", 53), 5)),
    "signal": tried(lambda: os.kill(os.getppid(), 0) or os.kill({os.getpid()}, 0)),
    "temporary": os.environ["TMPDIR"],
    "home": os.environ["HOME"],
}}
print("facts", json.dumps(facts))
open(os.path.join(os.environ["TRAINSHED_OUTPUT_DIR"], "model.txt"), "w").write("weights")
""",
    )


def script_that_forks(folder: Path) -> object:
    """Into ever new sessions, which take nothing away from the kernel's limit for a user that is not root."""
    return run(
        folder,
        """
import os, time
started, refused = time.monotonic(), 0
while time.monotonic() - started < 2:
    try:
        if os.fork() == 0:
            os.setsid()
    except OSError:
        refused += 1
        time.sleep(0.01)
os._exit(0 if refused else 3)
""",
    )


SCENARIOS = {"script_that_tells": script_that_tells, "script_that_forks": script_that_forks}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(SCENARIOS[sys.argv[1]](Path(sys.argv[2]))) + "\n")
    sys.stdout.flush()
